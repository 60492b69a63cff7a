/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/bell.h - sends and receives of a prepared map that a GPU starts.
 *
 * A bell ties a map to an endpoint. A CUDA stream or a kernel rings it: the map
 * is sent, or the next map is received, and no thread of the application takes
 * part.
 *
 *     tmsg_bell_create(endpoint, map, NULL, &bell);
 *     tmsg_bell_warm(bell, 10000);
 *     tmsg_bell_ring(bell, stream);  // when the stream comes here
 *     tmsg_bell_await(bell, stream); // the stream may write again
 *     tmsg_bell_destroy(bell);
 */
#ifndef TENSORMSG_BELL_H
#define TENSORMSG_BELL_H

#include <tensormsg/endpoint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A bell ties a map to an endpoint. Ringing it sends the map, or has the next
 * map received into it. It is rung by a CUDA stream (tmsg_bell_ring()), also
 * from a graph; by a kernel (tensormsg/device/bell.h); or by a thread of this
 * process, by the same header. The GPU writes a word of host memory. The
 * worker, which has to be driven, looks at that word once in each round of
 * progress. docs/reference/bells.md is the guide.
 *
 * One poster rings a bell: one stream at a time, or one kernel, never both
 * kinds. A bell has one map under way at a time.
 *
 * A bell fails for good when its operation fails, the endpoint ends, or the
 * worker or the bell is destroyed: tmsg_bell_status() says why. From then on it
 * delays no stream and no kernel, however often it is rung, and nothing is
 * sent. That holds after tmsg_bell_destroy(), too, until the context and its
 * workers are destroyed. Graphs and kernels that know the bell must be done by
 * then. Each bell keeps 128 bytes of page-locked memory until then.
 *
 * Threads: the functions here belong to whoever may use the worker. Any thread
 * may call tmsg_bell_ring(), tmsg_bell_await(), tmsg_bell_device(),
 * tmsg_bell_status() and tmsg_bell_error(). */
typedef struct tmsg_bell tmsg_bell_t;

/* Makes a bell that sends `map` each time that it is rung, as
 * tmsg_endpoint_send() with `params` (NULL: defaults) would. timeout_ms is for
 * each send by itself. The flags TMSG_SEND_TRY and TMSG_SEND_LEND, on_done and
 * on_release are refused. The send does not look at the streams of the map's
 * tensors: the poster has put the data there. With TMSG_SEND_ACKED a ring is
 * over when the peer's application has the map, else when its memory may be
 * changed. A ring waits for room in the endpoint's queue, whatever its policy.
 * A send that the policy drops counts as done.
 *
 * The map is held until the bell is destroyed; changes to it return BUSY. The
 * data that it borrows stay until then, and until a send that is under way has
 * ended. *bell_p is freed with tmsg_bell_destroy().
 * Errors: the endpoint's own if it has ended, and:
 *   INVALID_PARAM - a parameter; or tensors on several devices, two of which
 *     the error names
 *   UNSUPPORTED - a channel that the peer does not take; or memory that no bell
 *     can send. That is memory of a domain other than the CPU's and CUDA's. It
 *     is also memory of a pool, mapped piece by piece, or managed, if the peer
 *     is on this machine and UCX moves CUDA memory: it would be copied on its
 *     device first, which may need what a waiting kernel occupies.
 *   BUSY - the endpoint is not connected, or away
 *   CLOSED
 *   NO_MEMORY
 *   IO - the driver does not map host memory */
TMSG_API tmsg_status_t tmsg_bell_create(tmsg_endpoint_t *endpoint,
                                        const tmsg_map_t *map,
                                        const tmsg_send_params_t *params,
                                        tmsg_bell_t **bell_p);

/* Makes a bell that receives maps into the memory of `into`, one after the
 * other, as tmsg_endpoint_recv_into() does. The first map is received as soon
 * as a stream or a kernel uses the bell. When it is there, the stream or kernel
 * that waits for it goes on. By ringing it says that the next map may be
 * received. A message whose tensors differ from those of `into` fails the bell
 * and stays. Tensors that `into` does not have are dropped. While the bell
 * lives nothing else receives from this endpoint.
 *
 * `into` is held as the map of tmsg_bell_create().
 * Errors: those of tmsg_bell_create(), and:
 *   INVALID_PARAM - the worker has a message handler; or tensors overlap
 *   BUSY - `into` is in use; or another bell receives from this endpoint, or
 *     was destroyed and has not ended yet */
TMSG_API tmsg_status_t tmsg_bell_receive(tmsg_endpoint_t *endpoint,
                                         const tmsg_map_t *into,
                                         tmsg_bell_t **bell_p);

/* Does the bell's operation once, and waits for its end, for at most timeout_ms
 * (-1: no limit). If it was done before, it returns at once. The peer is sent
 * the map as it is; or the first map that comes is received, and dropped with
 * the next. This opens what would be opened the first time: connections,
 * mappings of the peer's memory, page-locked buffers. Some of that waits for
 * the device. It never ends if a kernel is already waiting for the bell. Call
 * it before the first ring. It drives the worker.
 * Errors: those that the operation ended with, and:
 *   TIMED_OUT - the operation goes on; call again
 *   BUSY - the bell was used
 *   WOULD_BLOCK - in a callback */
TMSG_API tmsg_status_t tmsg_bell_warm(tmsg_bell_t *bell, int timeout_ms);

/* Has a stream ring the bell. The stream waits until the map of the ring before
 * is done, then rings, and goes on at once. Writes to the map's memory come
 * after a tmsg_bell_await(). On a stream that is captured the ring becomes part
 * of the graph, and each launch rings. A ring of a bell that receives gives the
 * memory of `into` back, for the next map.
 *
 * CUDA does not know of this order. Work that only a bell puts in order with
 * work of another stream must not share a hardware queue with that work. Use
 * one stream, or let an event say the same. Nothing may wait for the stream on
 * the thread that drives the worker.
 * Errors: the bell's own if it has failed, and:
 *   INVALID_PARAM - no stream of CUDA; or a kernel uses the bell
 *   UNSUPPORTED - the device cannot: CAN_USE_64_BIT_STREAM_MEM_OPS is 0; or the
 *     bell is for memory of the CPU, and no device was in use when it was made
 *   IO - the driver */
TMSG_API tmsg_status_t tmsg_bell_ring(tmsg_bell_t *bell, tmsg_stream_t stream);

/* Has a stream wait. It waits until the last ring's map may be changed again
 * (with TMSG_SEND_ACKED: until the peer has it); not at all if there was no
 * ring. For a bell that receives it waits until the next map lies in `into`. It
 * may be captured, too. The stream goes on in any case: tmsg_bell_status()
 * tells whether the map was sent, and whether what lies there is a map. Errors:
 * those of tmsg_bell_ring(). */
TMSG_API tmsg_status_t tmsg_bell_await(tmsg_bell_t *bell, tmsg_stream_t stream);

/* Gives the line for a kernel: a tmsg_bell_line_t * (tensormsg/device/bell.h),
 * valid as long as the context. Threads of this process may use it as well, by
 * the same header.
 * Errors:
 *   INVALID_PARAM - a stream uses the bell */
TMSG_API tmsg_status_t tmsg_bell_device(tmsg_bell_t *bell, void **line_p);

/* Returns OK, or why the bell has failed. */
TMSG_API tmsg_status_t tmsg_bell_status(const tmsg_bell_t *bell);

/* Returns the words for that status, with the name of the peer; "" while all is
 * well. Valid as long as the bell. */
TMSG_API const char *tmsg_bell_error(const tmsg_bell_t *bell);

/* Ends the bell. A send that is under way is canceled. A wait for that send
 * ends as soon as UCX does not read the memory any more; other waits end at
 * once. It may be called after the worker's end, too. It does nothing in the
 * child of a fork(), which has no line of its parent's bells. NULL is
 * allowed. */
TMSG_API void tmsg_bell_destroy(tmsg_bell_t *bell);

#ifdef __cplusplus
}
#endif

#endif
