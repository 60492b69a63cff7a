/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/forged_listener.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include "am/boot/blob.h"
#include "am/boot/frame.h"
#include "am/connect/link.h"
#include "am/connect/ucx_for.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/lease.h"
#include "am/ucx/ep_index.h"
#include "am/ucx/peer_address.h"
#include "am/ucx/ucx_am.h"
#include "core/bytes.h"
#include "support/message_mutator.h"
#include "support/numbered_keys.h"
#include "support/raw_bootstrap.h"
#include "support/seeded_maps.h"

enum {
    HEAR_MS = 5000,   /* for a frame that has to come */
    POST_TURNS = 200, /* for a message to go at once */
    LATE_MS = 5000,   /* beyond a deadline, on a machine that is busy */
    FRAME_MOST = 8192,
    BODY_MOST = 64,
    KEPT_MOST = 512
};

/* The false one itself, and its conversation. */
typedef struct {
    const false_host_t *host;
    side_t honest, side, speaker;
    tmsg_ucx_t *ucx;    /* of `side`: the one that the other dials */
    tmsg_ucx_t *voice;  /* of `speaker`: what is said by UCX comes from there */
    uint8_t dead[2048]; /* the address of one that is gone, sealed */
    size_t dead_bytes;
    int listener;

    /* Who dials: all its connections go by one UCX worker. */
    uint8_t address[2048];
    size_t address_bytes;
    tmsg_hello_t peer;
    ucp_ep_h ep;

    int kept[KEPT_MOST]; /* sockets that it does not hang up on */
    unsigned kept_count;
    int fd; /* -1: it is over */
    uint32_t peer_id;
    tmsg_frame_stream_t in;
    uint8_t theirs[TMSG_HASH_BYTES], mine[TMSG_HASH_BYTES];
    uint8_t bound[TMSG_HASH_BYTES];
    uint8_t token[TMSG_TOKEN_BYTES];
    tmsg_frame_macs_t tx;
    int left; /* bytes that it may write; -1: all */
    mutator_t mutator;
} liar_t;

static void hang_up(liar_t *liar)
{
    if (liar->fd >= 0) {
        close(liar->fd);
        liar->fd = -1;
    }
}

static bool strikes(liar_t *liar)
{
    return liar->mutator.one_in > 0 &&
           sample_random(&liar->mutator.state) % liar->mutator.one_in == 0;
}

/* The other may have hung up: that is none of this one's business. */
static void put(liar_t *liar, const void *data, size_t bytes)
{
    if (liar->left >= 0 && bytes > (size_t)liar->left) {
        bytes = (size_t)liar->left;
    }
    if (liar->fd >= 0 && bytes > 0) {
        send(liar->fd, data, bytes, MSG_NOSIGNAL);
    }
    if (liar->left >= 0) {
        liar->left -= (int)bytes;
        if (liar->left == 0) {
            hang_up(liar);
        }
    }
}

/* What is changed is so before its MAC is made, or behind that. */
static void say(liar_t *liar, uint8_t type, const void *payload, size_t bytes)
{
    uint8_t frame[FRAME_MOST];
    uint8_t *at = frame + TMSG_FRAME_HEADER_BYTES;

    must_true(bytes + 256 < sizeof(frame));
    if (bytes > 0) {
        memcpy(at, payload, bytes);
    }
    if (strikes(liar)) {
        bytes = mutator_bytes(&liar->mutator, at, bytes == 0 ? 1 : bytes);
    }
    if (liar->tx.on) {
        tmsg_proof_mac(liar->tx.key, liar->tx.number++, type, at, bytes,
                       at + bytes);
        bytes += TMSG_MAC_BYTES;
    }
    *tmsg_put_le(frame, bytes, 4) = type;
    bytes += TMSG_FRAME_HEADER_BYTES;
    if (strikes(liar)) {
        bytes = mutator_bytes(&liar->mutator, frame, bytes);
    }
    put(liar, frame, bytes);
}

static void say_hello(liar_t *liar)
{
    uint8_t data[TMSG_HELLO_BYTES_MAX];
    tmsg_hello_t hello = liar->ucx->hello;
    size_t bytes;

    if (liar->host->keyed) {
        hello.admission = TMSG_ADMISSION_VERSION;
        memset(hello.nonce, 7, sizeof(hello.nonce));
    }
    must(tmsg_hello_encode(&hello, data, sizeof(data), &bytes));
    tmsg_proof_hash(data, bytes, liar->mine);
    say(liar, TMSG_FRAME_HELLO, data, bytes);
}

static void say_proof(liar_t *liar)
{
    uint8_t key[TMSG_KEY_BYTES], tx[TMSG_KEY_BYTES], rx[TMSG_KEY_BYTES];
    uint8_t proof[TMSG_PROOF_BYTES];

    keys_of(1, key);
    tmsg_proof_make(key, TMSG_ROLE_DIALLED, liar->bound, proof);
    say(liar, TMSG_FRAME_PROOF, proof, sizeof(proof));
    if (liar->host->keyed && !liar->tx.on) {
        tmsg_proof_frame_key(key, TMSG_ROLE_DIALLED, liar->bound, tx);
        tmsg_proof_frame_key(key, TMSG_ROLE_DIALLING, liar->bound, rx);
        memcpy(liar->tx.key, tx, sizeof(tx));
        liar->tx.on = true;
        tmsg_frame_protect(&liar->in, tx, rx, TMSG_FRAME_MAX_BYTES);
    }
}

/* [endpoint id u32][sealed address]. */
static size_t seal(const tmsg_ucx_t *ucx, const uint8_t *token, uint8_t *frame,
                   size_t room)
{
    tmsg_sealed_t sealed;
    void *address;
    size_t bytes;

    must(tmsg_ucx_address(ucx, false, &address, &sealed.address_bytes));
    sealed.address = address;
    memcpy(sealed.token, token, TMSG_TOKEN_BYTES);
    tmsg_put_le(frame, 1, 4);
    must(tmsg_sealed_encode(&sealed, frame + 4, room - 4, &bytes));
    tmsg_ucx_address_free(address);
    return 4 + bytes;
}

static void say_address(liar_t *liar)
{
    uint8_t frame[2048];
    size_t bytes;

    memset(liar->token, 't', sizeof(liar->token));
    bytes = seal(liar->ucx, liar->token, frame, sizeof(frame));
    say(liar, TMSG_FRAME_ADDRESS, frame, bytes);
}

static void say_dead_address(liar_t *liar)
{
    memset(liar->token, 't', sizeof(liar->token));
    say(liar, TMSG_FRAME_ADDRESS, liar->dead, liar->dead_bytes);
}

static void take_address(liar_t *liar, const uint8_t *data, size_t bytes)
{
    tmsg_ep_sockets_t sockets;
    tmsg_sealed_t sealed;
    uint32_t number;
    const tmsg_address_claim_t claim = {.hello = &liar->peer, .keyed = true};
    tmsg_peer_address_t *peer;

    must_true(bytes > 4);
    must(tmsg_sealed_decode(data + 4, bytes - 4, &sealed));
    must_true(sealed.address_bytes <= sizeof(liar->address));
    if (liar->ep != NULL && liar->address_bytes == sealed.address_bytes &&
        memcmp(liar->address, sealed.address, sealed.address_bytes) == 0) {
        return;
    }
    memcpy(liar->address, sealed.address, sealed.address_bytes);
    liar->address_bytes = sealed.address_bytes;
    must(tmsg_peer_address_check(liar->voice, &claim, sealed.address,
                                 sealed.address_bytes, &peer));
    if (tmsg_ep_index_make(liar->voice, liar->peer.ucx_id, peer, &liar->ep,
                           &sockets, &number) != TMSG_OK) {
        liar->ep = NULL;
    }
    tmsg_peer_address_free(peer);
}

static void take(liar_t *liar, uint8_t type, const uint8_t *data, size_t bytes)
{
    uint8_t transcript[TMSG_HASH_BYTES];

    if (type == TMSG_FRAME_HELLO) {
        tmsg_proof_hash(data, bytes, liar->theirs);
        must(tmsg_hello_decode(data, bytes, &liar->peer));
    } else if (type == TMSG_FRAME_PROOF) {
        tmsg_proof_transcript(liar->theirs, liar->mine, transcript);
        tmsg_proof_bind(transcript, data, bytes, liar->bound);
    } else if (type == TMSG_FRAME_ADDRESS) {
        take_address(liar, data, bytes);
    }
}

/* Waits a little for the socket; UCX goes on. False: it is over. */
static bool look(liar_t *liar)
{
    struct pollfd fd = {liar->fd, POLLIN, 0};

    tmsg_worker_progress(liar->side.worker);
    tmsg_worker_progress(liar->speaker.worker);
    poll(&fd, 1, 1);
    return (fd.revents & POLLNVAL) == 0;
}

/* Hears up to a frame of that type; 0: up to the end. */
static void hear(liar_t *liar, uint8_t wanted)
{
    uint64_t until = tmsg_now_ns() + HEAR_MS * UINT64_C(1000000);
    tmsg_status_t status = TMSG_IN_PROGRESS;
    const uint8_t *data;
    uint8_t type = 0;
    size_t bytes;

    while (liar->fd >= 0 && status >= 0 && tmsg_now_ns() < until) {
        status = tmsg_frame_read(&liar->in, &type, &data, &bytes);
        if (status == TMSG_OK) {
            take(liar, type, data, bytes);
            if (type == wanted) {
                return;
            }
        } else if (status == TMSG_IN_PROGRESS) {
            look(liar);
        }
    }
    hang_up(liar);
}

/* From a UCX worker that the other never dials, and as the library does it,
 * without UCX's own wireup of the endpoints: to break UCX's own rules is no
 * art. Since 1.17 it may never send at once by TCP, and keeps what it is given.
 */
static void post(liar_t *liar, const tmsg_preamble_t *head, const void *body)
{
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        .memory_type = UCS_MEMORY_TYPE_HOST,
        .flags = UCP_AM_SEND_FLAG_EAGER};
    size_t bytes = TMSG_PREAMBLE_BYTES + head->body_bytes;
    ucs_status_t ucs = UCS_ERR_NO_RESOURCE;
    uint8_t *header = malloc(bytes);

    must_true(header != NULL);
    tmsg_preamble_encode(head, header);
    memcpy(header + TMSG_PREAMBLE_BYTES, body, head->body_bytes);
    for (int i = 0;
         i < POST_TURNS && liar->ep != NULL && ucs == UCS_ERR_NO_RESOURCE;
         i++) {
        ucs = tmsg_ucx_am_send_now(liar->ep, header, bytes, NULL, 0);
        tmsg_worker_progress(liar->speaker.worker);
    }
    if (ucs == UCS_ERR_NO_RESOURCE && tmsg_ucx_version().minor >= 17 &&
        liar->ep != NULL) {
        ucs = UCS_PTR_RAW_STATUS(ucp_am_send_nbx(liar->ep, TMSG_AM_ID, header,
                                                 bytes, NULL, 0, &param));
        header = NULL;
    }
    free(header);
    if (ucs != UCS_OK && ucs != UCS_INPROGRESS && ucs != UCS_ERR_NO_RESOURCE) {
        liar->ep = NULL; /* the next address makes another */
    }
}

/* [token][an endpoint id u32][number of the UCX endpoint u32]. */
static void post_round(liar_t *liar, uint8_t kind)
{
    uint8_t body[BODY_MOST] = {0};
    tmsg_preamble_t head = {.kind = kind,
                            .endpoint_id = liar->peer_id,
                            .body_bytes = TMSG_TOKEN_BYTES + 8};

    if (kind == TMSG_KIND_WIREUP_REPLY) {
        head.body_bytes += TMSG_LEASE_BYTES;
    }
    must_true(head.body_bytes <= sizeof(body));
    memcpy(body, liar->token, TMSG_TOKEN_BYTES);
    tmsg_put_le(body + TMSG_TOKEN_BYTES, 1, 4);
    post(liar, &head, body);
}

static void post_junk(liar_t *liar)
{
    static const uint32_t lengths[] = {0, 4, 8, TMSG_TOKEN_BYTES + 8,
                                       BODY_MOST};
    uint8_t body[BODY_MOST];

    sample_fill(3, body, sizeof(body));
    memcpy(body, liar->token, TMSG_TOKEN_BYTES);
    for (unsigned i = 0; i < TMSG_KIND_COUNT + 2; i++) {
        const tmsg_preamble_t head = {
            .kind = (uint8_t)i,
            .endpoint_id = liar->peer_id,
            .message_id = i,
            .body_bytes = lengths[i % (sizeof(lengths) / sizeof(lengths[0]))]};

        post(liar, &head, body);
    }
}

static void say_each_type(liar_t *liar)
{
    for (uint8_t type = 0; type < 16; type++) {
        say(liar, type, "abc", 3);
    }
}

static void reset(liar_t *liar)
{
    const struct linger at_once = {1, 0};

    if (liar->fd >= 0) {
        setsockopt(liar->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    }
    hang_up(liar);
}

static void keep(liar_t *liar)
{
    must_true(liar->kept_count < KEPT_MOST);
    if (liar->fd >= 0) {
        liar->kept[liar->kept_count] = fcntl(liar->fd, F_DUPFD_CLOEXEC, 0);
        must_true(liar->kept[liar->kept_count++] >= 0);
    }
}

static void let_go(liar_t *liar)
{
    while (liar->kept_count > 0) {
        close(liar->kept[--liar->kept_count]);
    }
}

static void refuse(liar_t *liar, tmsg_status_t status, const char *words)
{
    uint8_t data[64];
    size_t bytes = strlen(words);

    tmsg_put_le(data, (uint32_t)status, 4);
    memcpy(data + 4, words, bytes);
    say(liar, TMSG_FRAME_REFUSE, data, 4 + bytes);
}

/* What needs no more than a few bytes. */
static void say_wrong(liar_t *liar, false_step_t step)
{
    static const uint8_t long_one[] = {255, 255, 255, 255, TMSG_FRAME_HELLO};
    static const uint8_t too_long[] = {17, 0, 1, 0, TMSG_FRAME_HELLO};
    static const uint8_t zeros[64];
    uint8_t noise[100];

    switch (step) {
    case SAY_NOISE:
        sample_fill(5, noise, sizeof(noise));
        put(liar, noise, sizeof(noise));
        break;
    case SAY_EMPTY_HELLO:
        say(liar, TMSG_FRAME_HELLO, NULL, 0);
        break;
    case SAY_ZERO_HELLO:
        say(liar, TMSG_FRAME_HELLO, zeros, sizeof(zeros));
        break;
    case SAY_HUGE_LENGTH:
        put(liar, long_one, sizeof(long_one));
        break;
    case SAY_LENGTH_TOO_LONG:
        put(liar, too_long, sizeof(too_long));
        break;
    case SAY_UNKNOWN_TYPE:
        say(liar, 200, zeros, 5);
        break;
    case SAY_SHORT_REFUSE:
        say(liar, TMSG_FRAME_REFUSE, zeros, 2);
        break;
    case SAY_RESUME:
        say(liar, TMSG_FRAME_RESUME, zeros, sizeof(zeros));
        break;
    case SAY_RESUMED:
        say(liar, TMSG_FRAME_RESUMED, zeros, sizeof(zeros));
        break;
    case SAY_BYE:
        say(liar, TMSG_FRAME_BYE, zeros, 4);
        break;
    case SAY_FIN:
        say(liar, TMSG_FRAME_FIN, zeros, 4);
        break;
    case SAY_HEARTBEAT:
        say(liar, TMSG_FRAME_HEARTBEAT, NULL, 0);
        break;
    default:
        die("no step %d", (int)step);
    }
}

static void act(liar_t *liar, false_step_t step)
{
    switch (step) {
    case SAY_MAGIC:
        put(liar, TMSG_FRAME_MAGIC, TMSG_FRAME_MAGIC_BYTES);
        break;
    case SAY_HELLO:
        say_hello(liar);
        break;
    case SAY_PROOF:
        say_proof(liar);
        break;
    case SAY_ADDRESS:
        say_address(liar);
        break;
    case SAY_DEAD_ADDRESS:
        say_dead_address(liar);
        break;
    case HEAR_HELLO:
        hear(liar, TMSG_FRAME_HELLO);
        break;
    case HEAR_PROOF:
        hear(liar, TMSG_FRAME_PROOF);
        break;
    case HEAR_ADDRESS:
        hear(liar, TMSG_FRAME_ADDRESS);
        break;
    case POST_CONNECT_REPLY:
        post_round(liar, TMSG_KIND_CONNECT_REPLY);
        break;
    case POST_WIREUP_REPLY:
        post_round(liar, TMSG_KIND_WIREUP_REPLY);
        break;
    case POST_EACH_KIND:
        post_junk(liar);
        break;
    case SAY_EACH_TYPE:
        say_each_type(liar);
        break;
    case SAY_REFUSE:
        refuse(liar, TMSG_ERR_UNSUPPORTED, "for no reason");
        break;
    case SAY_PEER_LOST:
        refuse(liar, TMSG_ERR_PEER_LOST, "for no reason");
        break;
    case KEEP_CONNECTION:
        keep(liar);
        break;
    case HANG_UP_ON_KEPT:
        let_go(liar);
        break;
    case SHUT_WRITING:
        shutdown(liar->fd, SHUT_WR);
        break;
    case AWAIT_END:
        hear(liar, 0);
        break;
    case HANG_UP_BY_RESET:
        reset(liar);
        break;
    default:
        say_wrong(liar, step);
    }
}

#define FALSE_STEP_NAME(name) [name] = #name,

const char *false_steps_text(const false_step_t *steps)
{
    static const char *const names[] = {FALSE_STEPS(FALSE_STEP_NAME)};
    static char text[FALSE_STEPS_MOST * 24];
    size_t bytes = 0;

    text[0] = '\0';
    for (size_t i = 0; i < FALSE_STEPS_MOST && steps[i] != HANG_UP; i++) {
        bytes += (size_t)snprintf(text + bytes, sizeof(text) - bytes, "%s ",
                                  names[steps[i]]);
    }
    return text;
}

/* A line for the child: the numbers of a conversation, the id of the endpoint
 * that dials, and the steps, two digits each. */
static void write_line(const false_talk_t *talk, uint32_t endpoint_id,
                       char *line, size_t room)
{
    size_t bytes =
        (size_t)snprintf(line, room, "%d %u %" PRIu64 " %u:", talk->cut,
                         talk->one_in, talk->seed, endpoint_id);

    for (size_t i = 0; talk->steps[i] != HANG_UP; i++) {
        must_true(i < FALSE_STEPS_MOST && bytes + 2 < room);
        bytes += (size_t)snprintf(line + bytes, room - bytes, "%02u",
                                  (unsigned)talk->steps[i]);
    }
}

static void run_steps(liar_t *liar, const char *digits)
{
    unsigned step;

    for (; sscanf(digits, "%2u", &step) == 1 && liar->fd >= 0; digits += 2) {
        act(liar, (false_step_t)step);
    }
}

static void converse(liar_t *liar, const char *line)
{
    memset(liar->token, 0, sizeof(liar->token));
    memset(&liar->tx, 0, sizeof(liar->tx));
    must_eq(sscanf(line, "%d %u %" SCNu64 " %u", &liar->left,
                   &liar->mutator.one_in, &liar->mutator.state, &liar->peer_id),
            4);
    liar->fd = accept4(liar->listener, NULL, NULL, SOCK_CLOEXEC);
    must_true(liar->fd >= 0);
    setsockopt(liar->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    tmsg_frame_init(&liar->in, liar->fd, TMSG_FRAME_MAX_BYTES);
    if (liar->left == 0) {
        hang_up(liar);
    }
    run_steps(liar, strchr(line, ':') + 1);
    hang_up(liar);
    tmsg_frame_free(&liar->in);
}

static int listen_unix(char *url, size_t bytes)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(un.sun_path, sizeof(un.sun_path), "%s", scratch_path("false"));
    snprintf(url, bytes, "unix://%s", un.sun_path);
    must_eq(bind(fd, (struct sockaddr *)&un, sizeof(un)), 0);
    must_eq(listen(fd, 16), 0);
    return fd;
}

static void drop(void *arg, tmsg_message_t *message)
{
    (void)arg;
    tmsg_message_destroy(message);
}

static void open_ucx(liar_t *liar, const side_options_t *options)
{
    tmsg_ucx_scope_t scope = {.device = ""};
    uint8_t token[TMSG_TOKEN_BYTES];
    side_t gone;
    tmsg_ucx_t *ucx;

    snprintf(scope.device, sizeof(scope.device), "%s",
             liar->host->link == LINK_UNIX ? "" : "lo");
    side_open(&liar->side, options);
    must(tmsg_worker_ucx(liar->side.worker, &scope, false, &liar->ucx));
    side_open(&liar->speaker, options);
    must(tmsg_worker_ucx(liar->speaker.worker, &scope, true, &liar->voice));
    memset(token, 't', sizeof(token));
    side_open(&gone, options);
    must(tmsg_worker_ucx(gone.worker, &scope, false, &ucx));
    liar->dead_bytes = seal(ucx, token, liar->dead, sizeof(liar->dead));
    side_close(&gone);
}

static void be_false(pipes_t *pipes, void *arg)
{
    static liar_t liar = {.fd = -1};
    false_host_t *host = arg;
    side_options_t options = {.ucx_config = link_config(host->link)};
    struct pollfd told = {pipes->in, POLLIN, 0};
    char line[512];

    liar.host = host;
    open_ucx(&liar, &options);
    liar.listener = host->link == LINK_UNIX
                        ? listen_unix(host->url, sizeof(host->url))
                        : raw_listen(host->url, sizeof(host->url));
    options.keyring = host->keyed ? ring("alice", 1) : NULL;
    options.drive = DRIVE_THREAD;
    options.worker = (tmsg_worker_params_t){
        .field_mask = TMSG_WORKER_PARAM_HANDLER, .handler = drop};
    side_open(&liar.honest, &options);
    side_listen_link(&liar.honest, host->link);
    line_put(pipes->out, host->url);
    line_put(pipes->out, tmsg_listener_url(liar.honest.listener));
    poll(&told, 1, -1); /* others have their turns first */
    line_get(pipes->in, line, sizeof(line));
    while (strcmp(line, "enough") != 0) {
        converse(&liar, line);
        line_put(pipes->out, "over");
        line_get(pipes->in, line, sizeof(line));
    }
}

void false_host_start(false_host_t *host, link_t link, bool keyed)
{
    memset(host, 0, sizeof(*host));
    host->link = link;
    host->keyed = keyed;
    child_start(&host->child, be_false, host);
}

void false_host_meet(false_host_t *host)
{
    line_get(host->child.in, host->url, sizeof(host->url));
    line_get(host->child.in, host->honest_url, sizeof(host->honest_url));
}

void false_host_end(false_host_t *host)
{
    line_put(host->child.out, "enough");
    child_join(&host->child);
}

/* How often a host is dialled that says PEER_LOST, at most:
 * am/connect/redial.h. */
static unsigned attempts_of(const false_step_t *steps)
{
    while (*steps != HANG_UP && *steps != SAY_PEER_LOST) {
        steps++;
    }
    return *steps == SAY_PEER_LOST ? 3 : 1;
}

tmsg_status_t false_host_dial(false_host_t *host, side_t *side,
                              const false_talk_t *talk, int timeout_ms,
                              char *words, size_t bytes)
{
    const tmsg_endpoint_params_t params = {
        .field_mask = TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT,
        .connect_timeout_ms = timeout_ms};
    unsigned attempts = attempts_of(talk->steps), dialled;
    uint64_t began = tmsg_now_ns();
    tmsg_endpoint_t *endpoint;
    tmsg_status_t status;
    char line[128];

    must(tmsg_endpoint_connect(side->worker, host->url, &params, &endpoint));
    write_line(talk, endpoint->id, line, sizeof(line));
    for (unsigned i = 0; i < attempts; i++) {
        line_put(host->child.out, line);
    }
    status = side_end_of(side, endpoint);
    must_true(tmsg_now_ns() - began <
              (uint64_t)(timeout_ms + LATE_MS) * 1000000);
    snprintf(words, bytes, "%s", tmsg_endpoint_error(endpoint));
    must_say(words, host->url);
    must_true(strlen(words) > strlen(host->url) + 10);
    dialled = endpoint->conn.redials + 1u;
    tmsg_endpoint_destroy(endpoint);
    for (unsigned i = 0; i < attempts; i++) {
        if (i >= dialled) {
            close(raw_dial(host->url)); /* what it waits for yet */
        }
        child_await(side, &host->child);
        line_get(host->child.in, line, sizeof(line));
    }
    return status;
}

void false_host_honest(false_host_t *host, side_t *side)
{
    tmsg_endpoint_t *endpoint = side_connect(side, host->honest_url);
    tmsg_request_t *closed;

    must(side_finish(
        side, send_map(endpoint, sample_bytes(1, 1000), TMSG_SEND_ACKED)));
    must(tmsg_endpoint_close(endpoint, &closed));
    must(side_finish(side, closed));
    tmsg_endpoint_destroy(endpoint);
}
