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
 * map received into it. A stream of CUDA rings it (tmsg_bell_ring()), also from
 * a graph, or a kernel (tensormsg/device/bell.h), or a thread of this process
 * by the same header. The GPU talks to nobody but the worker: it writes a word
 * of host memory, and the worker, which has to be driven meanwhile, looks at
 * that word once in each round of progress. docs/reference/bells.md is the
 * guide.
 *
 * One poster rings a bell: one stream at a time, or one kernel, never both
 * kinds. A bell has one map under way at a time.
 *
 * A bell fails for good when its operation fails, the endpoint ends, the worker
 * is destroyed, or the bell is: tmsg_bell_status() says why. From then on it
 * holds up no stream and no kernel, however often it is rung: nothing is sent
 * any more. That holds after tmsg_bell_destroy(), too, until the context and
 * its workers are destroyed; graphs and kernels that know the bell have to be
 * done by then. Each bell keeps 128 bytes of page-locked memory until then.
 *
 * Threads: the functions here belong to whoever may use the worker, but
 * tmsg_bell_ring(), tmsg_bell_await(), tmsg_bell_device(), tmsg_bell_status()
 * and tmsg_bell_error(), which any thread may call. */
typedef struct tmsg_bell tmsg_bell_t;

/* Makes a bell that sends `map` each time that it is rung, as
 * tmsg_endpoint_send() with `params` (NULL: defaults) would; timeout_ms is for
 * each send by itself. Of these the flags TMSG_SEND_TRY and TMSG_SEND_LEND,
 * on_done and on_release are refused. The send does not look at the streams of
 * the map's tensors: who rings has put the data there. With TMSG_SEND_ACKED a
 * ring is over when the peer's application has the map, else when its memory
 * may be changed. A ring waits for room in the endpoint's queue, whatever its
 * policy; a send that the policy drops counts as done.
 *
 * The map is held until the bell is destroyed, which makes changes to it answer
 * BUSY; the data that it borrows stay where they are until then, and until
 * a send that is under way has ended. *bell_p is freed with
 * tmsg_bell_destroy().
 *
 * Errors: INVALID_PARAM (a parameter; tensors on several devices, two of which
 * are named), UNSUPPORTED (memory that no bell can send: of a domain other than
 * the CPU's and CUDA's; of a memory pool, mapped piece by piece, or managed,
 * where the peer is on this machine and UCX moves CUDA memory, since it would
 * be copied on its device first, which may need what a waiting kernel occupies;
 * a channel that the peer does not take), BUSY (the endpoint is not connected,
 * or away), CLOSED and the endpoint's own where it has ended, NO_MEMORY, IO
 * (the driver does not map host memory). */
TMSG_API tmsg_status_t tmsg_bell_create(tmsg_endpoint_t *endpoint,
                                        const tmsg_map_t *map,
                                        const tmsg_send_params_t *params,
                                        tmsg_bell_t **bell_p);

/* Makes a bell that receives maps into the memory of `into`, one after the
 * other, as tmsg_endpoint_recv_into() does. The first one is received as soon
 * as a stream or a kernel uses the bell. When it lies there the stream or
 * kernel goes on that waits for it, and by ringing it says that the next one
 * may be received. A message whose tensors differ from those of `into` fails
 * the bell and stays where it is. What `into` has no tensor for is dropped.
 * While the bell lives nothing else receives from this endpoint.
 *
 * `into` is held as the map of tmsg_bell_create(). Errors: as there, and
 * INVALID_PARAM (the worker has a message handler; tensors that overlap), BUSY
 * (`into` is in use; another bell receives from this endpoint, or was destroyed
 * and has yet to end). */
TMSG_API tmsg_status_t tmsg_bell_receive(tmsg_endpoint_t *endpoint,
                                         const tmsg_map_t *into,
                                         tmsg_bell_t **bell_p);

/* Does the bell's operation once, and waits for its end, for timeout_ms at most
 * (-1: no limit; at once if it was done before): the peer is sent the map as it
 * is, or the first map that comes is received, and dropped with the next. It
 * opens what would be opened the first time: connections, mappings of the
 * peer's memory, page-locked buffers. Some of these calls wait for the device,
 * and so for ever if a kernel is already waiting for the bell. To be called
 * before the first ring. Drives the worker. Errors: TIMED_OUT (the operation
 * goes on; call again), BUSY (the bell was used), WOULD_BLOCK (in a callback),
 * and those that the operation ended with. */
TMSG_API tmsg_status_t tmsg_bell_warm(tmsg_bell_t *bell, int timeout_ms);

/* Has a stream ring the bell: the stream waits until the map of the ring before
 * is done, and then rings. The stream goes on at once; whatever writes to the
 * map's memory comes after a tmsg_bell_await(). On a stream that is captured
 * the ring becomes part of the graph, and each launch rings. Of a bell that
 * receives a ring gives the memory of `into` back, for the next map.
 *
 * CUDA does not know of this order: work that is put in order by a bell alone,
 * with work of another stream, is not to share a hardware queue with it. Use
 * one stream, or let an event say the same. Nothing may wait for the stream on
 * the thread that drives the worker.
 *
 * Errors: INVALID_PARAM (no stream of CUDA; a kernel uses the bell),
 * UNSUPPORTED (the device cannot: CAN_USE_64_BIT_STREAM_MEM_OPS is 0; the bell
 * is for memory of the CPU and no device was in use when it was made), IO (the
 * driver), and the bell's own once it has failed. */
TMSG_API tmsg_status_t tmsg_bell_ring(tmsg_bell_t *bell, tmsg_stream_t stream);

/* Has a stream wait: until the last ring's map may be changed again (or the
 * peer has it, with TMSG_SEND_ACKED), at once if there was no ring; of a bell
 * that receives, until the next map lies in `into`. It may be captured, too.
 * Whether it was sent, and whether what lies there is a map, tells
 * tmsg_bell_status(): the stream goes on in any case. Errors: as of
 * tmsg_bell_ring(). */
TMSG_API tmsg_status_t tmsg_bell_await(tmsg_bell_t *bell, tmsg_stream_t stream);

/* Gives the line that a kernel is given: a tmsg_bell_line_t *
 * (tensormsg/device/bell.h), valid as long as the context. Threads of
 * this process may use it as well, by the same header. Errors: INVALID_PARAM (a
 * stream uses the bell). */
TMSG_API tmsg_status_t tmsg_bell_device(tmsg_bell_t *bell, void **line_p);

/* OK, or why the bell has failed. */
TMSG_API tmsg_status_t tmsg_bell_status(const tmsg_bell_t *bell);

/* The words to that status, naming the peer; "" while all is well. Valid as
 * long as the bell. */
TMSG_API const char *tmsg_bell_error(const tmsg_bell_t *bell);

/* Ends the bell. A send that is under way is canceled: what waits for it goes
 * on as soon as UCX does not read the memory any more; what waits for anything
 * else goes on at once. May be called after the worker's end, too. Does nothing
 * in the child of a fork(), which has no line of its parent's bells. NULL is
 * allowed. */
TMSG_API void tmsg_bell_destroy(tmsg_bell_t *bell);

#ifdef __cplusplus
}
#endif

#endif
