/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/listener.h - accepts connections at a URL.
 *
 * A listener belongs to a worker. Its peers send to that worker.
 *
 *     tmsg_listener_create(worker, "tcp://:0", NULL, &listener);
 *     puts(tmsg_listener_url(listener)); // with the port that was picked
 *     tmsg_worker_recv(worker, -1, &message);
 *     peer = tmsg_message_endpoint(message);
 *     tmsg_listener_destroy(listener);
 */
#ifndef TENSORMSG_LISTENER_H
#define TENSORMSG_LISTENER_H

#include <stddef.h>
#include <stdint.h>

#include <tensormsg/endpoint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tmsg_listener tmsg_listener_t;

/* Hands over an endpoint that has connected, before any message of it is
 * delivered. The endpoint now belongs to the application, which destroys it.
 * Called on the thread that drives the worker, with no lock held. */
typedef void (*tmsg_accept_fn)(void *arg, tmsg_endpoint_t *endpoint);

enum {
    TMSG_LISTENER_PARAM_ON_ACCEPT = 1 << 0,
    TMSG_LISTENER_PARAM_ALLOW_UNAUTHENTICATED = 1 << 1,
    TMSG_LISTENER_PARAM_HANDSHAKE_TIMEOUT = 1 << 2,
    TMSG_LISTENER_PARAM_MAX_HANDSHAKES = 1 << 3,
    TMSG_LISTENER_PARAM_ADVERTISE = 1 << 4,
    TMSG_LISTENER_PARAM_DEVICES = 1 << 5,
    TMSG_LISTENER_PARAM_RESUME = 1 << 6,
    TMSG_LISTENER_PARAM_KEYRING = 1 << 7,
    TMSG_LISTENER_PARAM_MAX_HANDSHAKE_BYTES = 1 << 8,
    TMSG_LISTENER_PARAM_ON_PEER = 1 << 9, /* on_peer, on_lost, on_peer_arg */
    TMSG_LISTENER_PARAM_SUBSCRIBE = 1 << 10,
    TMSG_LISTENER_PARAM_CARRIER = 1 << 11,
    TMSG_LISTENER_PARAM_TLS = 1 << 12
};

typedef struct tmsg_listener_params {
    uint64_t field_mask;           /* TMSG_LISTENER_PARAM_*; unset: defaults */
    tmsg_accept_fn on_accept;      /* default none: the listener keeps its
                                    * endpoints and frees those that end */
    void *on_accept_arg;           /* passed to on_accept; set with it */
    int32_t allow_unauthenticated; /* 1: without a key, strangers who can
                                    * reach a non-loopback address may
                                    * connect */
    int32_t handshake_timeout_ms;  /* from accept to connected; default 5000 */
    uint32_t max_handshakes;       /* connections in their handshake at once,
                                    * default 128. If there are more, a
                                    * connection that makes no progress makes
                                    * way: it is refused with BUSY, and dialling
                                    * endpoints of this library dial again.
                                    * First goes a connection without a hello
                                    * 10 ms after it came (50 ms, if such ones
                                    * hold at most a quarter of the places).
                                    * Next goes one that has said nothing for 50
                                    * ms since its hello. Among equals the
                                    * oldest goes, of the address (at unix://:
                                    * the process) that holds the most places.
                                    * One that has proved its key stays. Without
                                    * a keyring, one that has sent its address
                                    * goes after all others, 500 ms after it. If
                                    * none makes way, further ones wait in the
                                    * kernel's queue. By blob, 1024 of them wait
                                    * in a queue of the listener, each for twice
                                    * as long as a handshake may take. Without a
                                    * keyring none makes way there. A peer's
                                    * further connections, for large payloads or
                                    * a stream, take a place for a moment. A
                                    * peer that has said everything and waits
                                    * for its stream takes no place. Without a
                                    * keyring this holds for up to 128 peers, or
                                    * as many as there are places */
    const char *advertise; /* URL that tmsg_listener_url() gives instead of the
                            * bound one: "tcp://host:port" as peers reach it (a
                            * container, NAT). Port 0 stands for the bound port.
                            * For tcp://. It does not change what UCX says of
                            * itself: see docs/how-to/nothing-arrives.md.
                            * Default NULL: the bound one */
    const char *devices;   /* network devices that UCX may use for the
                            * listener's connections, "eth1" or "eth1,mlx5_0:1",
                            * 63 bytes at most. Default NULL: the device of the
                            * bound address. Devices other than "lo" need a
                            * keyring or allow_unauthenticated. For tcp:// and
                            * blob:// */
    int32_t resume_ms;     /* how long an endpoint waits for a peer whose
                            * connection broke and that comes back by itself
                            * (tmsg_reconnect_t); -1: without limit; default 0:
                            * the endpoint ends at once */
    tmsg_keyring_t *keyring;      /* peers prove a key of it before they learn
                                   * where UCX is, and before the library
                                   * believes them (tensormsg/key.h). Default
                                   * that of the context; NULL: no key. ucx://
                                   * takes NULL only */
    uint32_t max_handshake_bytes; /* of a frame of a peer that has not proved a
                                   * key yet, and sends two at most; without a
                                   * keyring, of the first frame, the hello.
                                   * 1024 or more, default 4096 */
    /* on_peer and on_lost tell who is connected, whoever owns the endpoint: the
     * application that got it by on_accept, a publisher, or this listener. Each
     * may be NULL, the default.
     *
     * on_peer is called once for each peer that has connected, before on_accept
     * and before any message of the peer is delivered. A peer whose connection
     * broke and came back (resume_ms) is not announced again. In on_peer the
     * endpoint may be used, but not destroyed.
     *
     * on_lost is called once for each peer that on_peer was or would have been
     * called for, when its endpoint has ended. The status is CLOSED after an
     * orderly end, CANCELED if this side ended it at once, else the failure
     * (PEER_LOST, ..., as for tmsg_closed_fn). A peer whose session is kept is
     * not lost. on_lost comes before on_closed. The endpoint is valid during
     * the call, even if it was destroyed already, for tmsg_endpoint_peer() and
     * similar functions. Messages that it had delivered may still wait to be
     * pulled.
     *
     * Both are called on the thread that drives the worker, one after another,
     * with no lock held, and may do what a message handler may. After
     * tmsg_listener_destroy() neither is called. A call that another thread has
     * begun may still go on. */
    tmsg_peer_fn on_peer;
    tmsg_closed_fn on_lost;
    void *on_peer_arg;  /* passed to both; set with them */
    uint32_t subscribe; /* TMSG_SUBSCRIBE_* (endpoint.h): what this side asks of
                         * peers that publish; default 0. Peers of blob:// and
                         * ucx:// are not asked */
    int32_t carrier;    /* tmsg_carrier_t of its connections. Default that of
                         * the configuration; STREAM at an address that is not
                         * loopback, without a keyring and devices */
    tmsg_tls_t *tls;    /* certificates, by which both sides of tls:// prove who
                         * they are (tensormsg/tls.h). Default NULL: they prove
                         * a key of the keyring */
} tmsg_listener_params_t;

/* Listens. `url` is one of
 *   "tls://host:port"  as tcp://, and encrypted by TLS 1.3; needs `tls` or a
 *                      keyring
 *   "tcp://host:port"  host: a name or address, IPv6 in brackets; empty means
 *                      loopback; port 0 picks a free one. An address that is
 *                      not loopback needs a keyring or allow_unauthenticated,
 *                      else INSECURE.
 *   "unix:///path"     a socket file; messages stay in shared memory, and UCX
 *                      opens no port. A stream carries the messages of peers in
 *                      other namespaces. A stale file is replaced.
 *   "unix://@name"     the same without a file: an abstract socket (unix(7)),
 *                      gone with the process, reached within its network
 *                      namespace. Connections of other users are dropped.
 *   "blob://host"      no socket: peers come by tmsg_listener_blob(), over
 *                      the network device that has this address (empty:
 *                      loopback), by the same rule.
 *   "ucx://host:port"  UCX's own listener, for peers that use UCXX:
 *                      docs/how-to/ucxx.md says what they can do, and who may
 *                      reach it. By the same rule; max_handshakes rejects
 *                      further ones.
 *
 * *params (NULL: defaults) is copied. The caller frees *listener_p with
 * tmsg_listener_destroy(). With listener_p NULL the listener lives as long as
 * its worker.
 *
 * This call looks a host name up, which may block, but not the worker. In a
 * callback of the worker a name is WOULD_BLOCK; addresses work. It opens UCX
 * (some 25 ms, once for each address of a worker), so that what keeps UCX from
 * serving shows here. At unix:// NO_MEMORY names /dev/shm if that has no room.
 * Errors:
 *   INVALID_PARAM - the URL, or a key of ucx_config
 *   NOT_FOUND - the host or the device
 *   ALREADY_EXISTS - the address is in use
 *   INSECURE - without a key strangers could connect
 *   UNSUPPORTED - resume_ms with blob:// or ucx://, a keyring with ucx://
 *   WOULD_BLOCK - a host name, in a callback
 *   IO
 *   INTERNAL - UCX failed
 *   NO_MEMORY */
TMSG_API tmsg_status_t tmsg_listener_create(
    tmsg_worker_t *worker, const char *url,
    const tmsg_listener_params_t *params, tmsg_listener_t **listener_p);

/* Returns the URL that peers connect to, with the port that was picked. Valid
 * as long as the listener. */
TMSG_API const char *tmsg_listener_url(const tmsg_listener_t *listener);

/* Gives the opaque, versioned blob by which peers reach a "blob://" listener.
 * You carry it to them by your own means (a file, MPI, a database). A holder of
 * the blob can connect; with a keyring, only a holder who also has a key. The
 * blob is proved by the keys that the keyring has now, so get it again when
 * they have changed. *blob_p lives as long as the listener.
 * Errors:
 *   INVALID_PARAM - another kind of listener
 *   CLOSED - a peer that was killed has blocked the shared memory of this
 *     listener: make another listener
 *   NO_MEMORY */
TMSG_API tmsg_status_t tmsg_listener_blob(const tmsg_listener_t *listener,
                                          const void **blob_p,
                                          size_t *blob_bytes_p);

/* Describes the listener as a JSON object:
 *  - "url", "asks_for_key"
 *  - "handshakes": connections in their handshake now
 *  - "accepted": connections that the listener accepted
 *  - "connected": those that finished their handshake
 *  - "refused": an object: how many had "no_key" or a "wrong_key", were "older"
 *    peers that know of no key, were "too_many" at once, "timed_out", were
 *    "too_long" in what they said, or were refused "otherwise"
 *
 * Of the offers of its worker it has what tmsg_worker_describe() has. *json_p
 * is freed with tmsg_string_free(). Errors: NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_listener_describe(const tmsg_listener_t *listener,
                                              char **json_p);

/* Stops listening. Endpoints that were handed over live on. Endpoints that the
 * listener kept, and connections in their handshake, are closed at once. Call
 * this before the worker is destroyed, which frees the listener too. NULL is
 * allowed. */
TMSG_API void tmsg_listener_destroy(tmsg_listener_t *listener);

#ifdef __cplusplus
}
#endif

#endif
