/* SPDX-License-Identifier: BSD-3-Clause */
/* Sizes and offsets of the public structs, which are ABI: a binding, and a
 * program that was compiled before, have them inside. Written by
 * `cmake --build build --target update-layout`; the diff belongs in the commit
 * that means it. */
#include <stddef.h>

#include <tensormsg/tensormsg.h>

#define SIZE(type, bytes)                                                      \
    _Static_assert(sizeof(type) == (bytes), "size of " #type)
#define AT(type, field, offset)                                                \
    _Static_assert(offsetof(type, field) == (offset), #type "." #field)

#if defined(__x86_64__) && defined(__LP64__)

SIZE(tmsg_allocator_t, 24);
AT(tmsg_allocator_t, alloc, 0);
AT(tmsg_allocator_t, release, 8);
AT(tmsg_allocator_t, arg, 16);

SIZE(tmsg_call_metrics_t, 1160);
AT(tmsg_call_metrics_t, ended, 0);
AT(tmsg_call_metrics_t, in_flight, 8);
AT(tmsg_call_metrics_t, rejected, 16);
AT(tmsg_call_metrics_t, retried, 24);
AT(tmsg_call_metrics_t, sent_bytes, 32);
AT(tmsg_call_metrics_t, received_bytes, 40);
AT(tmsg_call_metrics_t, latency_sum_ns, 48);
AT(tmsg_call_metrics_t, latency_most_ns, 56);
AT(tmsg_call_metrics_t, by_status, 64);
AT(tmsg_call_metrics_t, rejected_by_status, 576);
AT(tmsg_call_metrics_t, running, 1088);
AT(tmsg_call_metrics_t, waiting, 1096);
AT(tmsg_call_metrics_t, held, 1104);
AT(tmsg_call_metrics_t, stalls, 1112);
AT(tmsg_call_metrics_t, long_handlers, 1120);
AT(tmsg_call_metrics_t, reserved, 1128);

SIZE(tmsg_call_params_t, 72);
AT(tmsg_call_params_t, field_mask, 0);
AT(tmsg_call_params_t, timeout_ms, 8);
AT(tmsg_call_params_t, on_done, 16);
AT(tmsg_call_params_t, on_done_arg, 24);
AT(tmsg_call_params_t, on_release, 32);
AT(tmsg_call_params_t, on_release_arg, 40);
AT(tmsg_call_params_t, reply_into, 48);
AT(tmsg_call_params_t, flags, 56);
AT(tmsg_call_params_t, retry, 60);

SIZE(tmsg_call_stream_events_t, 32);
AT(tmsg_call_stream_events_t, field_mask, 0);
AT(tmsg_call_stream_events_t, on_readable, 8);
AT(tmsg_call_stream_events_t, on_over, 16);
AT(tmsg_call_stream_events_t, arg, 24);

SIZE(tmsg_call_stream_params_t, 40);
AT(tmsg_call_stream_params_t, field_mask, 0);
AT(tmsg_call_stream_params_t, timeout_ms, 8);
AT(tmsg_call_stream_params_t, queue, 12);
AT(tmsg_call_stream_params_t, on_release, 16);
AT(tmsg_call_stream_params_t, on_release_arg, 24);
AT(tmsg_call_stream_params_t, signature, 32);

SIZE(tmsg_call_stream_stats_t, 64);
AT(tmsg_call_stream_stats_t, sent, 0);
AT(tmsg_call_stream_stats_t, received, 8);
AT(tmsg_call_stream_stats_t, unread, 16);
AT(tmsg_call_stream_stats_t, dropped, 24);
AT(tmsg_call_stream_stats_t, reserved, 32);

SIZE(tmsg_context_params_t, 72);
AT(tmsg_context_params_t, field_mask, 0);
AT(tmsg_context_params_t, limits, 8);
AT(tmsg_context_params_t, ucx_config, 16);
AT(tmsg_context_params_t, flags, 24);
AT(tmsg_context_params_t, peer_timeout_ms, 28);
AT(tmsg_context_params_t, config_file, 32);
AT(tmsg_context_params_t, on_trace, 40);
AT(tmsg_context_params_t, on_trace_arg, 48);
AT(tmsg_context_params_t, device_table, 56);
AT(tmsg_context_params_t, keyring, 64);

SIZE(tmsg_device_allocator_t, 24);
AT(tmsg_device_allocator_t, alloc, 0);
AT(tmsg_device_allocator_t, release, 8);
AT(tmsg_device_allocator_t, arg, 16);

SIZE(tmsg_device_identity_t, 192);
AT(tmsg_device_identity_t, name, 0);
AT(tmsg_device_identity_t, uuid, 96);
AT(tmsg_device_identity_t, bus_id, 160);

SIZE(tmsg_device_info_t, 256);
AT(tmsg_device_info_t, device, 0);
AT(tmsg_device_info_t, kind, 8);
AT(tmsg_device_info_t, index, 12);
AT(tmsg_device_info_t, module_id, 16);
AT(tmsg_device_info_t, numa_node, 20);
AT(tmsg_device_info_t, title, 24);
AT(tmsg_device_info_t, uuid, 120);
AT(tmsg_device_info_t, bus_id, 168);
AT(tmsg_device_info_t, nic, 188);
AT(tmsg_device_info_t, reserved, 224);

SIZE(tmsg_device_t, 8);
AT(tmsg_device_t, type, 0);
AT(tmsg_device_t, id, 4);

SIZE(tmsg_devices_params_t, 32);
AT(tmsg_devices_params_t, field_mask, 0);
AT(tmsg_devices_params_t, table, 8);
AT(tmsg_devices_params_t, sysfs, 16);
AT(tmsg_devices_params_t, flags, 24);

SIZE(tmsg_dlpack_params_t, 32);
AT(tmsg_dlpack_params_t, field_mask, 0);
AT(tmsg_dlpack_params_t, flags, 8);
AT(tmsg_dlpack_params_t, release, 16);
AT(tmsg_dlpack_params_t, release_arg, 24);

SIZE(tmsg_domain_copy_t, 24);
AT(tmsg_domain_copy_t, to, 0);
AT(tmsg_domain_copy_t, from, 8);
AT(tmsg_domain_copy_t, bytes, 16);

SIZE(tmsg_domain_t, 168);
AT(tmsg_domain_t, table_bytes, 0);
AT(tmsg_domain_t, name, 8);
AT(tmsg_domain_t, transport, 16);
AT(tmsg_domain_t, arg, 24);
AT(tmsg_domain_t, holds, 32);
AT(tmsg_domain_t, classify, 40);
AT(tmsg_domain_t, alloc, 48);
AT(tmsg_domain_t, free, 56);
AT(tmsg_domain_t, copy_in, 64);
AT(tmsg_domain_t, copy_out, 72);
AT(tmsg_domain_t, copy_within, 80);
AT(tmsg_domain_t, stream, 88);
AT(tmsg_domain_t, event_record, 96);
AT(tmsg_domain_t, event_query, 104);
AT(tmsg_domain_t, event_wait, 112);
AT(tmsg_domain_t, event_free, 120);
AT(tmsg_domain_t, pin, 128);
AT(tmsg_domain_t, unpin, 136);
AT(tmsg_domain_t, identify, 144);
AT(tmsg_domain_t, use, 152);
AT(tmsg_domain_t, copy_batch, 160);

SIZE(tmsg_dtype_t, 4);
AT(tmsg_dtype_t, code, 0);
AT(tmsg_dtype_t, bits, 1);
AT(tmsg_dtype_t, lanes, 2);

SIZE(tmsg_endpoint_params_t, 64);
AT(tmsg_endpoint_params_t, field_mask, 0);
AT(tmsg_endpoint_params_t, connect_timeout_ms, 8);
AT(tmsg_endpoint_params_t, devices, 16);
AT(tmsg_endpoint_params_t, subscribe, 24);
AT(tmsg_endpoint_params_t, reconnect, 28);
AT(tmsg_endpoint_params_t, keyring, 40);
AT(tmsg_endpoint_params_t, flags, 48);
AT(tmsg_endpoint_params_t, carrier, 52);
AT(tmsg_endpoint_params_t, tls, 56);

SIZE(tmsg_fetch_params_t, 72);
AT(tmsg_fetch_params_t, field_mask, 0);
AT(tmsg_fetch_params_t, slices, 8);
AT(tmsg_fetch_params_t, slice_count, 16);
AT(tmsg_fetch_params_t, into, 24);
AT(tmsg_fetch_params_t, timeout_ms, 32);
AT(tmsg_fetch_params_t, wait_ms, 36);
AT(tmsg_fetch_params_t, epoch, 40);
AT(tmsg_fetch_params_t, on_done, 48);
AT(tmsg_fetch_params_t, on_done_arg, 56);
AT(tmsg_fetch_params_t, flags, 64);

SIZE(tmsg_file_load_params_t, 24);
AT(tmsg_file_load_params_t, field_mask, 0);
AT(tmsg_file_load_params_t, format, 8);
AT(tmsg_file_load_params_t, limits, 16);

SIZE(tmsg_file_save_params_t, 24);
AT(tmsg_file_save_params_t, field_mask, 0);
AT(tmsg_file_save_params_t, format, 8);
AT(tmsg_file_save_params_t, flags, 12);
AT(tmsg_file_save_params_t, limits, 16);

SIZE(tmsg_health_report_t, 272);
AT(tmsg_health_report_t, health, 0);
AT(tmsg_health_report_t, pad, 4);
AT(tmsg_health_report_t, running, 8);
AT(tmsg_health_report_t, waiting, 16);
AT(tmsg_health_report_t, held, 24);
AT(tmsg_health_report_t, stalls, 32);
AT(tmsg_health_report_t, why, 40);
AT(tmsg_health_report_t, reserved, 240);

SIZE(tmsg_intercepted_t, 112);
AT(tmsg_intercepted_t, side, 0);
AT(tmsg_intercepted_t, is_stream, 4);
AT(tmsg_intercepted_t, method, 8);
AT(tmsg_intercepted_t, endpoint, 16);
AT(tmsg_intercepted_t, principal, 24);
AT(tmsg_intercepted_t, map, 32);
AT(tmsg_intercepted_t, remaining_ms, 40);
AT(tmsg_intercepted_t, state, 48);
AT(tmsg_intercepted_t, elapsed_ns, 56);
AT(tmsg_intercepted_t, sent_bytes, 64);
AT(tmsg_intercepted_t, received_bytes, 72);
AT(tmsg_intercepted_t, sent, 80);
AT(tmsg_intercepted_t, received, 88);
AT(tmsg_intercepted_t, attempts, 96);
AT(tmsg_intercepted_t, status, 100);
AT(tmsg_intercepted_t, error, 104);

SIZE(tmsg_interceptor_t, 48);
AT(tmsg_interceptor_t, field_mask, 0);
AT(tmsg_interceptor_t, begin, 8);
AT(tmsg_interceptor_t, message, 16);
AT(tmsg_interceptor_t, end, 24);
AT(tmsg_interceptor_t, refused, 32);
AT(tmsg_interceptor_t, arg, 40);

SIZE(tmsg_limits_t, 80);
AT(tmsg_limits_t, field_mask, 0);
AT(tmsg_limits_t, tensors, 8);
AT(tmsg_limits_t, ndim, 16);
AT(tmsg_limits_t, name_bytes, 24);
AT(tmsg_limits_t, metadata_bytes, 32);
AT(tmsg_limits_t, header_bytes, 40);
AT(tmsg_limits_t, message_bytes, 48);
AT(tmsg_limits_t, held_bytes, 56);
AT(tmsg_limits_t, metadata_keys, 64);
AT(tmsg_limits_t, lent_bytes, 72);

SIZE(tmsg_listener_params_t, 120);
AT(tmsg_listener_params_t, field_mask, 0);
AT(tmsg_listener_params_t, on_accept, 8);
AT(tmsg_listener_params_t, on_accept_arg, 16);
AT(tmsg_listener_params_t, allow_unauthenticated, 24);
AT(tmsg_listener_params_t, handshake_timeout_ms, 28);
AT(tmsg_listener_params_t, max_handshakes, 32);
AT(tmsg_listener_params_t, advertise, 40);
AT(tmsg_listener_params_t, devices, 48);
AT(tmsg_listener_params_t, resume_ms, 56);
AT(tmsg_listener_params_t, keyring, 64);
AT(tmsg_listener_params_t, max_handshake_bytes, 72);
AT(tmsg_listener_params_t, on_peer, 80);
AT(tmsg_listener_params_t, on_lost, 88);
AT(tmsg_listener_params_t, on_peer_arg, 96);
AT(tmsg_listener_params_t, subscribe, 104);
AT(tmsg_listener_params_t, carrier, 108);
AT(tmsg_listener_params_t, tls, 112);

SIZE(tmsg_map_add_params_t, 40);
AT(tmsg_map_add_params_t, field_mask, 0);
AT(tmsg_map_add_params_t, release, 8);
AT(tmsg_map_add_params_t, release_arg, 16);
AT(tmsg_map_add_params_t, stream, 24);

SIZE(tmsg_memory_t, 32);
AT(tmsg_memory_t, device, 0);
AT(tmsg_memory_t, kind, 8);
AT(tmsg_memory_t, shared, 12);
AT(tmsg_memory_t, base, 16);
AT(tmsg_memory_t, bytes, 24);

SIZE(tmsg_meta_t, 40);
AT(tmsg_meta_t, type, 0);
AT(tmsg_meta_t, boolean, 4);
AT(tmsg_meta_t, i64, 8);
AT(tmsg_meta_t, f64, 16);
AT(tmsg_meta_t, data, 24);
AT(tmsg_meta_t, bytes, 32);

SIZE(tmsg_method_info_t, 80);
AT(tmsg_method_info_t, name, 0);
AT(tmsg_method_info_t, description, 8);
AT(tmsg_method_info_t, signature, 16);
AT(tmsg_method_info_t, concurrency, 24);
AT(tmsg_method_info_t, queue, 28);
AT(tmsg_method_info_t, health, 32);
AT(tmsg_method_info_t, is_stream, 36);
AT(tmsg_method_info_t, is_idempotent, 40);
AT(tmsg_method_info_t, needs_principal, 44);
AT(tmsg_method_info_t, reserved, 48);

SIZE(tmsg_method_params_t, 48);
AT(tmsg_method_params_t, field_mask, 0);
AT(tmsg_method_params_t, concurrency, 8);
AT(tmsg_method_params_t, queue, 12);
AT(tmsg_method_params_t, signature, 16);
AT(tmsg_method_params_t, description, 24);
AT(tmsg_method_params_t, principals, 32);
AT(tmsg_method_params_t, flags, 40);

SIZE(tmsg_offer_key_t, 48);
AT(tmsg_offer_key_t, bytes, 0);

SIZE(tmsg_offer_params_t, 80);
AT(tmsg_offer_params_t, field_mask, 0);
AT(tmsg_offer_params_t, name, 8);
AT(tmsg_offer_params_t, version, 16);
AT(tmsg_offer_params_t, ttl_ms, 24);
AT(tmsg_offer_params_t, fetches, 28);
AT(tmsg_offer_params_t, principals, 32);
AT(tmsg_offer_params_t, on_over, 40);
AT(tmsg_offer_params_t, on_over_arg, 48);
AT(tmsg_offer_params_t, on_release, 56);
AT(tmsg_offer_params_t, on_release_arg, 64);
AT(tmsg_offer_params_t, flags, 72);

SIZE(tmsg_offer_stats_t, 64);
AT(tmsg_offer_stats_t, fetches, 0);
AT(tmsg_offer_stats_t, failed, 8);
AT(tmsg_offer_stats_t, bytes, 16);
AT(tmsg_offer_stats_t, under_way, 24);
AT(tmsg_offer_stats_t, reserved, 32);

SIZE(tmsg_publisher_params_t, 48);
AT(tmsg_publisher_params_t, field_mask, 0);
AT(tmsg_publisher_params_t, keep, 8);
AT(tmsg_publisher_params_t, subscriber, 16);
AT(tmsg_publisher_params_t, on_peer, 24);
AT(tmsg_publisher_params_t, on_lost, 32);
AT(tmsg_publisher_params_t, on_peer_arg, 40);

SIZE(tmsg_queue_params_t, 32);
AT(tmsg_queue_params_t, field_mask, 0);
AT(tmsg_queue_params_t, messages, 8);
AT(tmsg_queue_params_t, policy, 12);
AT(tmsg_queue_params_t, bytes, 16);
AT(tmsg_queue_params_t, window, 24);
AT(tmsg_queue_params_t, most_ms, 28);

SIZE(tmsg_reconnect_t, 12);
AT(tmsg_reconnect_t, first_backoff_ms, 0);
AT(tmsg_reconnect_t, most_backoff_ms, 4);
AT(tmsg_reconnect_t, give_up_ms, 8);

SIZE(tmsg_reply_params_t, 32);
AT(tmsg_reply_params_t, field_mask, 0);
AT(tmsg_reply_params_t, on_release, 8);
AT(tmsg_reply_params_t, on_release_arg, 16);
AT(tmsg_reply_params_t, flags, 24);

SIZE(tmsg_retry_t, 12);
AT(tmsg_retry_t, attempts, 0);
AT(tmsg_retry_t, first_backoff_ms, 4);
AT(tmsg_retry_t, most_backoff_ms, 8);

SIZE(tmsg_send_params_t, 72);
AT(tmsg_send_params_t, field_mask, 0);
AT(tmsg_send_params_t, flags, 8);
AT(tmsg_send_params_t, policy, 12);
AT(tmsg_send_params_t, on_done, 16);
AT(tmsg_send_params_t, on_done_arg, 24);
AT(tmsg_send_params_t, way, 32);
AT(tmsg_send_params_t, protocol, 36);
AT(tmsg_send_params_t, timeout_ms, 40);
AT(tmsg_send_params_t, on_release, 48);
AT(tmsg_send_params_t, on_release_arg, 56);
AT(tmsg_send_params_t, channel, 64);

SIZE(tmsg_server_params_t, 24);
AT(tmsg_server_params_t, field_mask, 0);
AT(tmsg_server_params_t, concurrency, 8);
AT(tmsg_server_params_t, queue, 12);
AT(tmsg_server_params_t, threads, 16);
AT(tmsg_server_params_t, flags, 20);

SIZE(tmsg_shareable_params_t, 16);
AT(tmsg_shareable_params_t, field_mask, 0);
AT(tmsg_shareable_params_t, device, 8);

SIZE(tmsg_slice_t, 48);
AT(tmsg_slice_t, name, 0);
AT(tmsg_slice_t, as, 8);
AT(tmsg_slice_t, ndim, 16);
AT(tmsg_slice_t, start, 24);
AT(tmsg_slice_t, count, 32);
AT(tmsg_slice_t, step, 40);

SIZE(tmsg_span_t, 72);
AT(tmsg_span_t, trace_id, 0);
AT(tmsg_span_t, span_id, 16);
AT(tmsg_span_t, parent_id, 24);
AT(tmsg_span_t, begun_ns, 32);
AT(tmsg_span_t, ended_ns, 40);
AT(tmsg_span_t, begun_monotonic_ns, 48);
AT(tmsg_span_t, trace_state, 56);
AT(tmsg_span_t, call, 64);

SIZE(tmsg_stream_t, 16);
AT(tmsg_stream_t, kind, 0);
AT(tmsg_stream_t, handle, 8);

SIZE(tmsg_subscriber_params_t, 40);
AT(tmsg_subscriber_params_t, field_mask, 0);
AT(tmsg_subscriber_params_t, flags, 8);
AT(tmsg_subscriber_params_t, messages, 12);
AT(tmsg_subscriber_params_t, bytes, 16);
AT(tmsg_subscriber_params_t, window, 24);
AT(tmsg_subscriber_params_t, slow, 28);
AT(tmsg_subscriber_params_t, most_ms, 32);

SIZE(tmsg_tensor_t, 40);
AT(tmsg_tensor_t, data, 0);
AT(tmsg_tensor_t, device, 8);
AT(tmsg_tensor_t, dtype, 16);
AT(tmsg_tensor_t, ndim, 20);
AT(tmsg_tensor_t, shape, 24);
AT(tmsg_tensor_t, strides, 32);

SIZE(tmsg_tls_params_t, 80);
AT(tmsg_tls_params_t, field_mask, 0);
AT(tmsg_tls_params_t, ca, 8);
AT(tmsg_tls_params_t, cert, 16);
AT(tmsg_tls_params_t, key, 24);
AT(tmsg_tls_params_t, password, 32);
AT(tmsg_tls_params_t, crl, 40);
AT(tmsg_tls_params_t, name, 48);
AT(tmsg_tls_params_t, pin, 56);
AT(tmsg_tls_params_t, depth, 64);
AT(tmsg_tls_params_t, rekey_bytes, 72);

SIZE(tmsg_trace_context_t, 544);
AT(tmsg_trace_context_t, trace_id, 0);
AT(tmsg_trace_context_t, span_id, 16);
AT(tmsg_trace_context_t, flags, 24);
AT(tmsg_trace_context_t, state, 28);

SIZE(tmsg_trace_event_t, 56);
AT(tmsg_trace_event_t, step, 0);
AT(tmsg_trace_event_t, status, 4);
AT(tmsg_trace_event_t, time_ns, 8);
AT(tmsg_trace_event_t, bytes, 16);
AT(tmsg_trace_event_t, message_id, 24);
AT(tmsg_trace_event_t, sequence, 28);
AT(tmsg_trace_event_t, channel, 32);
AT(tmsg_trace_event_t, connection, 36);
AT(tmsg_trace_event_t, endpoint, 40);
AT(tmsg_trace_event_t, peer, 48);

SIZE(tmsg_tracer_params_t, 32);
AT(tmsg_tracer_params_t, field_mask, 0);
AT(tmsg_tracer_params_t, on_span, 8);
AT(tmsg_tracer_params_t, on_span_arg, 16);
AT(tmsg_tracer_params_t, millionths, 24);

SIZE(tmsg_worker_params_t, 136);
AT(tmsg_worker_params_t, field_mask, 0);
AT(tmsg_worker_params_t, flags, 8);
AT(tmsg_worker_params_t, handler, 16);
AT(tmsg_worker_params_t, handler_arg, 24);
AT(tmsg_worker_params_t, queue_depth, 32);
AT(tmsg_worker_params_t, allocator, 40);
AT(tmsg_worker_params_t, spin_us, 48);
AT(tmsg_worker_params_t, on_refused, 56);
AT(tmsg_worker_params_t, on_refused_arg, 64);
AT(tmsg_worker_params_t, on_header, 72);
AT(tmsg_worker_params_t, on_header_arg, 80);
AT(tmsg_worker_params_t, send_queue, 88);
AT(tmsg_worker_params_t, channels, 120);
AT(tmsg_worker_params_t, device_allocator, 128);

#endif
