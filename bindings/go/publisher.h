/* SPDX-License-Identifier: BSD-3-Clause */
/* publisher.h - publishers as Go holds them. */
#ifndef TENSORMSG_GO_PUBLISHER_H
#define TENSORMSG_GO_PUBLISHER_H

#include "hub.h"

tmsggo_result_t tmsggo_publisher(tmsggo_hub_t *hub,
                                 tmsg_publisher_params_t params,
                                 tmsg_subscriber_params_t subscriber,
                                 tmsg_publisher_t **publisher_p);

/* A listener whose peers are subscribers. Its door has none of them. */
tmsggo_result_t tmsggo_publisher_listen(tmsggo_hub_t *hub, const char *url,
                                        tmsg_listener_params_t params,
                                        int peers, tmsg_publisher_t *publisher,
                                        tmsggo_door_t **door_p);
tmsggo_result_t tmsggo_publisher_add(tmsg_publisher_t *publisher,
                                     tmsg_endpoint_t *endpoint,
                                     tmsg_subscriber_params_t params);
tmsggo_result_t tmsggo_publisher_remove(tmsg_publisher_t *publisher,
                                        tmsg_endpoint_t *endpoint);

/* Publishes, and never waits: WOULD_BLOCK, after which the request is that of
 * tmsg_publisher_ready(). */
tmsggo_sent_t tmsggo_publish(tmsg_publisher_t *publisher, const tmsg_map_t *map,
                             uint32_t flags, uint16_t channel);
tmsggo_result_t tmsggo_publisher_close(tmsg_publisher_t *publisher,
                                       tmsg_request_t **request_p);
char *tmsggo_describe_publisher(const tmsg_publisher_t *publisher);

/* So many subscribers as somebody waits for; also complete without a publisher,
 * which is taken away before it is destroyed. Freed with free(). */
typedef struct tmsggo_crowd {
    const tmsg_publisher_t *publisher;
    size_t least;
} tmsggo_crowd_t;
tmsggo_crowd_t *tmsggo_crowd(const tmsg_publisher_t *publisher, size_t least);
int tmsggo_crowd_is_complete(const tmsggo_crowd_t *crowd);

tmsggo_result_t tmsggo_tensor_bytes(const tmsg_tensor_t *tensor,
                                    uint64_t *bytes_p);
tmsggo_result_t tmsggo_tensor_pack(const tmsg_tensor_t *tensor, void *buffer);

/* Copies a map, whose tensors are in the host's memory, with memory of its
 * own. */
tmsggo_result_t tmsggo_copy(const tmsg_map_t *map, tmsg_map_t **copy_p);

#endif
