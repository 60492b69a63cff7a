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

/* Hands over an endpoint that has connected, before any message of its is
 * delivered. It now belongs to the application, which destroys it. Called on
 * the thread that progresses, with no lock held. */
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
                                    * default 128. Beyond them, one that does
                                    * not get on makes way: it is refused as
                                    * BUSY, and our own diallers dial again.
                                    * First goes one that has not said its hello
                                    * 10 ms after it came (50 ms, if at most a
                                    * quarter of the places is held by such).
                                    * Next goes one that has said nothing for
                                    * 50 ms since its hello. Among equals, it is
                                    * the oldest of the address (of unix://: the
                                    * process) that holds the most places. One
                                    * that has proved its key stays; without a
                                    * keyring, one that has sent its address
                                    * goes after all others, 500 ms after it.
                                    * If none makes way, further ones wait in the
                                    * kernel's queue. By blob 1024 of them wait
                                    * in a queue of the listener's, each for
                                    * twice as long as a handshake may take;
                                    * without a keyring none makes way there.
                                    * The further connections of a peer, for
                                    * large payloads or a stream, take a place
                                    * for a moment. A peer that has said all and
                                    * waits for its stream takes none; without a
                                    * keyring up to 128 of them, or as many as
                                    * there are places */
    const char *advertise; /* URL that tmsg_listener_url() gives instead of the
                            * bound one, "tcp://host:port" as peers reach it
                            * (a container, NAT); port 0 stands for the bound
                            * one. For tcp://. It changes nothing of what UCX
                            * says of itself: see
                            * docs/how-to/nothing-arrives.md.
                            * Default NULL: the bound one */
    const char *devices;   /* that UCX may use for its connections, "eth1" or
                            * "eth1,mlx5_0:1", 63 bytes at most; default NULL:
                            * the one of the bound address. Others than "lo"
                            * need a keyring or allow_unauthenticated. For
                            * tcp:// and blob:// */
    int32_t resume_ms;     /* how long an endpoint waits for a peer
                            * whose connection broke, and that comes
                            * back by itself (tmsg_reconnect_t); -1:
                            * for ever; default 0: it ends at once */
    tmsg_keyring_t *keyring;      /* of which peers have to prove a key, before
                                   * anything of theirs is believed and they are
                                   * told where UCX is (tensormsg/key.h).
                                   * Default that of the context; NULL: no key.
                                   * Not for ucx://, which takes NULL alone */
    uint32_t max_handshake_bytes; /* of a frame of who has not proved a key
                                   * yet, who sends two at most; without a
                                   * keyring, of the first frame, the hello.
                                   * 1024 or more, default 4096 */
    /* Who is there, whoever owns the endpoint: the application that got it by
     * on_accept, a publisher, or this listener. Each may be NULL, the default.
     *
     * on_peer is called once for each peer that has connected, before on_accept
     * and before any message of the peer is delivered. A peer whose connection
     * broke and came back (resume_ms) is not announced again. In on_peer the
     * endpoint may be used, but not destroyed.
     *
     * on_lost is called once for each peer that on_peer was called for, or
     * would have been, when its endpoint has ended: CLOSED after the orderly
     * end, CANCELED if this side ended it at once, PEER_LOST and the others of
     * tmsg_closed_fn if it failed. While a session is kept its peer is not
     * lost. on_lost comes before on_closed. The endpoint is valid during the
     * call, even if it was destroyed already: ask it for tmsg_endpoint_peer()
     * and the like. Messages that it had delivered may still wait to be pulled.
     *
     * Both are called on the thread that progresses, one after another, with no
     * lock held, and may do what a message handler may. After
     * tmsg_listener_destroy() neither is called any more; a call that another
     * thread has begun may still go on. */
    tmsg_peer_fn on_peer;
    tmsg_closed_fn on_lost;
    void *on_peer_arg;  /* passed to both; set with them */
    uint32_t subscribe; /* TMSG_SUBSCRIBE_*, what peers that publish are asked
                         * for (endpoint.h); default 0. Peers of blob:// and
                         * ucx:// do not hear of it */
    int32_t carrier;    /* tmsg_carrier_t, for its connections; default that of
                         * the configuration, and STREAM at an address that is
                         * not loopback, without a keyring and devices */
    tmsg_tls_t *tls;    /* by which both sides of tls:// prove who they are
                         * (tensormsg/tls.h). Default NULL: by the keyring */
} tmsg_listener_params_t;

/* Listens. `url` is one of
 *   "tls://host:port"  as tcp://, and all of it encrypted, by TLS 1.3; needs
 *                      `tls` or a keyring
 *   "tcp://host:port"  host: a name or address, IPv6 in brackets; empty means
 *                      loopback; port 0 picks a free one. An address that is
 *                      not loopback needs a keyring or allow_unauthenticated,
 *                      else INSECURE.
 *   "unix:///path"     a socket file; traffic stays in shared memory and UCX
 *                      opens no port; peers in other namespaces are carried
 *                      by a stream. A stale file is replaced.
 *   "unix://@name"     the same without a file: an abstract socket (unix(7)),
 *                      gone with the process, reached within its network
 *                      namespace. Connections of other users are dropped.
 *   "blob://host"      no socket: peers come by tmsg_listener_blob(), over
 *                      the network device that has this address (empty:
 *                      loopback), by the same rule.
 *   "ucx://host:port"  UCX's own listener, for peers that use UCXX: see
 *                      docs/how-to/ucxx.md for what they can and cannot, and
 *                      who may reach it. By the same rule; max_handshakes
 *                      rejects further ones.
 * A host name is resolved here, which may block, but not the worker; in one of
 * its callbacks a name is WOULD_BLOCK (addresses work). UCX is opened (some
 * 25 ms, once for each address of a worker), so that what keeps it from
 * serving shows here: NO_MEMORY names /dev/shm where that has no room, and the
 * URL is unix://. *params (NULL: defaults) is copied. The caller frees
 * *listener_p with tmsg_listener_destroy(). With listener_p NULL the listener
 * lives as long as its worker. Errors: INVALID_PARAM (the URL, a
 * key of ucx_config), NOT_FOUND (host, device), ALREADY_EXISTS (address in
 * use), INSECURE, UNSUPPORTED (resume_ms with blob:// or ucx://, a keyring with
 * ucx://), IO, INTERNAL (UCX), NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_listener_create(
    tmsg_worker_t *worker, const char *url,
    const tmsg_listener_params_t *params, tmsg_listener_t **listener_p);

/* Where it listens, with the port that was picked: what peers connect to.
 * Valid as long as the listener. */
TMSG_API const char *tmsg_listener_url(const tmsg_listener_t *listener);

/* The opaque, versioned blob by which peers reach a "blob://" listener, to be
 * carried to them by a rendezvous of your own (a file, MPI, a database).
 * Whoever holds it can connect, or with a keyring who has a key besides: it is
 * proved by the keys that the ring has now, so fetch it again when they have
 * changed. *blob_p lives as long as the listener. Errors: INVALID_PARAM
 * (another kind of listener), CLOSED (a peer that was killed left the shared
 * memory that it leads to blocked: make another listener), NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_listener_blob(const tmsg_listener_t *listener,
                                          const void **blob_p,
                                          size_t *blob_bytes_p);

/* Describes the listener as a JSON object: its URL, "asks_for_key", the
 * connections in their "handshakes" now, and how many were "accepted" by it,
 * got "connected", and were "refused", an object: for want of a key ("no_key",
 * "older" peers that know of none), with a "wrong_key", as "too_many" at once,
 * "timed_out", "too_long" in what they said, and "otherwise"; and of the offers
 * of its worker what tmsg_worker_describe() tells. *json_p is freed
 * with tmsg_string_free(). Errors: NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_listener_describe(const tmsg_listener_t *listener,
                                              char **json_p);

/* Stops listening. Endpoints already handed over live on; those that the
 * listener kept are closed at once, with the handshakes under way. To be called
 * before its worker is destroyed, which frees it too. NULL is allowed. */
TMSG_API void tmsg_listener_destroy(tmsg_listener_t *listener);

#ifdef __cplusplus
}
#endif

#endif
