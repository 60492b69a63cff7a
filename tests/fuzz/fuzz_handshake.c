/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz: slow */
/* Both sides of a live handshake, without and with a key, against frames in any
 * order: right ones, such as only who has the key can say, and others. None of
 * them gets as far as UCX: the dialling side is given no address that is
 * sealed. One may have a session that broke, which the speaker takes up. An
 * input is
 *
 *   [which side, and how][letter, count, so many bytes] ...
 *
 * Bit 4 of a letter sends descriptors with its bytes, bit 5 has it a frame of a
 * higher type.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include "am/connect/dialect.h"
#include "am/connect/link.h"
#include "am/connect/ucx_for.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/session.h"
#include "am/listen/listener.h"
#include "am/send/send.h"
#include "am/session/resume.h"
#include "core/bytes.h"
#include "support/numbered_keys.h"
#include "support/raw_bootstrap.h"
#include "support/seeded_maps.h"

static const uint8_t session_id[TMSG_TOKEN_BYTES] = "iiiiiiiiiiiiiii";

enum {
    DIALS = 1, /* the side that is tried dials */
    KEYED = 2,
    SESSION = 4, /* asks for a session, or is asked */
    AWAY = 8,    /* and has one, whose connection broke */
    SENDS = 4,   /* of that, which the peer may not have got */
    ROUNDS_MOST = 100000,
    PASSED_MOST = 3,
    HIGHER = 32,
    PASSRIGHTS = 83, /* SO_PASSRIGHTS, which older headers lack */
    FRAME_MOST = 4096
};

/* The side that is tried. */
static struct {
    side_t side;
    tmsg_listener_t *listeners[2]; /* without and with a key */
    tmsg_keyring_t *keyring;
    tmsg_hello_t hello; /* as it would say it */
    int listener;
    char url[128];
} tried;

/* Who speaks to it. */
typedef struct {
    unsigned how;
    int fd;
    unsigned passed;           /* descriptors that go with the next bytes */
    tmsg_endpoint_t *endpoint; /* the one that dials, or has a session */
    tmsg_frame_stream_t in;
    uint8_t theirs[TMSG_HASH_BYTES], mine[TMSG_HASH_BYTES];
    uint8_t bound[TMSG_HASH_BYTES];
    tmsg_frame_macs_t tx;
} speaker_t;

static int listen_unix(char *url, size_t bytes)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    snprintf(un.sun_path, sizeof(un.sun_path), "%s", scratch_path("raw"));
    snprintf(url, bytes, "unix://%s", un.sun_path);
    must_eq(bind(fd, (struct sockaddr *)&un, sizeof(un)), 0);
    must_eq(listen(fd, 16), 0);
    return fd;
}

static void begin(void)
{
    const tmsg_ucx_scope_t scope = {.device = ""};
    tmsg_listener_params_t params = {.field_mask = TMSG_LISTENER_PARAM_RESUME,
                                     .resume_ms = -1};
    char url[160];
    tmsg_ucx_t *ucx;

    side_open(&tried.side, NULL);
    tried.keyring = ring("peer", 1);
    params.keyring = tried.keyring;
    for (int i = 0; i < 2; i++) {
        snprintf(url, sizeof(url), "unix://%s",
                 scratch_path(i == 0 ? "plain" : "keyed"));
        must(tmsg_listener_create(tried.side.worker, url, &params,
                                  &tried.listeners[i]));
        params.field_mask |= TMSG_LISTENER_PARAM_KEYRING;
    }
    must(tmsg_worker_ucx(tried.side.worker, &scope, false, &ucx));
    tried.hello = ucx->hello;
    tried.listener = listen_unix(tried.url, sizeof(tried.url));
}

static void progress(void)
{
    for (int i = 0; i < 3; i++) {
        tried.side.worker->pace.look = true;
        tmsg_worker_progress(tried.side.worker);
    }
}

/* As if UCX had sent them when the connection broke. */
static void send_some(tmsg_endpoint_t *endpoint, uint16_t number)
{
    tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS |
                                               TMSG_SEND_PARAM_CHANNEL,
                                 .channel = number};
    tmsg_channel_t *channel;

    must(tmsg_channel_get(endpoint, number, &channel));
    channel->tx_window = endpoint->peer_hello.queue_depth;
    for (uint32_t i = 0; i < SENDS; i++) {
        tmsg_map_t *map = sample_bytes(i, 8);
        tmsg_send_t *send;

        params.flags = i % 2 == 0 ? TMSG_SEND_ACKED : 0;
        must(tmsg_endpoint_send(endpoint, map, &params, NULL));
        tmsg_map_destroy(map);
        send = TMSG_CONTAINER_OF(tmsg_channel_pop(channel), tmsg_send_t, node);
        send->posted = true;
        send->ucx_status = UCS_OK;
        send->sequence = channel->tx_sequence++;
        tmsg_list_push(&endpoint->posted, &send->node);
    }
}

static void have_session(tmsg_endpoint_t *endpoint)
{
    const tmsg_reconnect_t reconnect = {1, 1, 60000};

    if (endpoint->resume == NULL) {
        must(tmsg_resume_request(endpoint, &reconnect, 0, 10000));
    }
    endpoint->peer_hello = tried.hello;
    endpoint->resume->agreed = true;
    endpoint->resume->away = true;
    endpoint->resume->broke_ns = tmsg_now_ns();
    memcpy(endpoint->resume->id, session_id, sizeof(session_id));
    memcpy(endpoint->resume->peer, tried.hello.instance_id,
           TMSG_INSTANCE_BYTES);
    send_some(endpoint, 0);
    send_some(endpoint, 3);
}

static tmsg_endpoint_t *make_session(tmsg_listener_t *listener)
{
    tmsg_endpoint_t *endpoint;

    must(tmsg_endpoint_create(tried.side.worker, &tmsg_dialect_own, &endpoint));
    endpoint->accepted = true;
    tmsg_url_parse(listener->url, &endpoint->link.url);
    tmsg_endpoint_name_peer(endpoint, listener->url);
    tmsg_admit_begin(endpoint, listener->keyring, NULL);
    if (listener->keyring != NULL) {
        snprintf(endpoint->admit.name, sizeof(endpoint->admit.name), "peer");
        endpoint->admit.principal = endpoint->admit.name;
    }
    endpoint->state = TMSG_EP_AWAY;
    have_session(endpoint);
    return endpoint;
}

static void open_speaker(speaker_t *speaker)
{
    tmsg_endpoint_params_t params = {.field_mask = 0};

    if (!(speaker->how & DIALS)) {
        tmsg_listener_t *listener =
            tried.listeners[(speaker->how & KEYED) != 0];

        if (speaker->how & AWAY) {
            speaker->endpoint = make_session(listener);
        }
        speaker->fd = raw_dial(tmsg_listener_url(listener));
    } else {
        if (speaker->how & KEYED) {
            params.field_mask |= TMSG_ENDPOINT_PARAM_KEYRING;
            params.keyring = tried.keyring;
        }
        if (speaker->how & (SESSION | AWAY)) {
            params.field_mask |= TMSG_ENDPOINT_PARAM_RECONNECT;
        }
        must(tmsg_endpoint_connect(tried.side.worker, tried.url, &params,
                                   &speaker->endpoint));
        if (speaker->how & AWAY) {
            have_session(speaker->endpoint);
        }
        speaker->fd = accept4(tried.listener, NULL, NULL, SOCK_CLOEXEC);
    }
    must_true(speaker->fd >= 0);
    must_eq(fcntl(speaker->fd, F_SETFL, O_NONBLOCK), 0);
    tmsg_frame_init(&speaker->in, speaker->fd, TMSG_FRAME_MAX_BYTES);
}

static void protect(speaker_t *speaker)
{
    uint8_t key[TMSG_KEY_BYTES], dialling[TMSG_KEY_BYTES],
        dialled[TMSG_KEY_BYTES];
    const uint8_t *tx = speaker->how & DIALS ? dialled : dialling;

    keys_of(1, key);
    tmsg_proof_frame_key(key, TMSG_ROLE_DIALLING, speaker->bound, dialling);
    tmsg_proof_frame_key(key, TMSG_ROLE_DIALLED, speaker->bound, dialled);
    speaker->tx = (tmsg_frame_macs_t){.on = true};
    memcpy(speaker->tx.key, tx, TMSG_KEY_BYTES);
    tmsg_frame_protect(&speaker->in, tx, tx == dialled ? dialling : dialled,
                       TMSG_FRAME_MAX_BYTES);
}

static void transcript_of(const speaker_t *speaker, uint8_t *transcript)
{
    bool dials = (speaker->how & DIALS) != 0;

    tmsg_proof_transcript(dials ? speaker->theirs : speaker->mine,
                          dials ? speaker->mine : speaker->theirs, transcript);
}

static void hear(speaker_t *speaker)
{
    uint8_t transcript[TMSG_HASH_BYTES];
    const uint8_t *data;
    size_t bytes;
    uint8_t type;

    progress();
    while (tmsg_frame_read(&speaker->in, &type, &data, &bytes) == TMSG_OK) {
        if (type == TMSG_FRAME_HELLO) {
            tmsg_proof_hash(data, bytes, speaker->theirs);
        } else if (type == TMSG_FRAME_PROOF && (speaker->how & DIALS)) {
            transcript_of(speaker, transcript);
            tmsg_proof_bind(transcript, data, bytes, speaker->bound);
        } else if (type == TMSG_FRAME_PROOF) {
            protect(speaker);
        }
    }
}

/* As a kernel before Linux 6.16 does, which refuses no descriptors. */
static void let_pass(void)
{
    const tmsg_worker_t *worker = tried.side.worker;
    const int on = 1;

    for (uint32_t i = 0; i < worker->endpoint_slots; i++) {
        if (worker->endpoints[i] != NULL) {
            setsockopt(worker->endpoints[i]->link.fd, SOL_SOCKET, PASSRIGHTS,
                       &on, sizeof(on));
        }
    }
}

static void put(speaker_t *speaker, const void *data, size_t bytes)
{
    union {
        struct cmsghdr head;
        uint8_t bytes[CMSG_SPACE(PASSED_MOST * sizeof(int))];
    } control = {.head = {.cmsg_len = CMSG_LEN(speaker->passed * sizeof(int)),
                          .cmsg_level = SOL_SOCKET,
                          .cmsg_type = SCM_RIGHTS}};
    struct iovec all = {(void *)(uintptr_t)data, bytes};
    struct msghdr message = {.msg_iov = &all, .msg_iovlen = 1};

    if (speaker->passed > 0) {
        let_pass();
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(speaker->passed * sizeof(int));
        memset(CMSG_DATA(&control.head), 0, speaker->passed * sizeof(int));
        speaker->passed = 0;
    }
    (void)!sendmsg(speaker->fd, &message, MSG_NOSIGNAL);
}

static void say(speaker_t *speaker, uint8_t type, const uint8_t *payload,
                size_t bytes)
{
    uint8_t frame[FRAME_MOST];
    uint8_t *at = frame + TMSG_FRAME_HEADER_BYTES;

    must_true(bytes + 64 < sizeof(frame));
    if (bytes > 0) {
        memcpy(at, payload, bytes);
    }
    if (speaker->tx.on) {
        tmsg_proof_mac(speaker->tx.key, speaker->tx.number++, type, at, bytes,
                       at + bytes);
        bytes += TMSG_MAC_BYTES;
    }
    *tmsg_put_le(frame, bytes, 4) = type;
    put(speaker, frame, TMSG_FRAME_HEADER_BYTES + bytes);
}

/* A right hello, with some bytes of its own: [where u16][what] each. */
static void say_hello(speaker_t *speaker, const uint8_t *data, size_t count)
{
    uint8_t hello[TMSG_HELLO_BYTES_MAX];
    tmsg_hello_t fields = tried.hello;
    size_t bytes;

    fields.admission = (speaker->how & KEYED) != 0;
    memset(fields.nonce, 9, fields.admission ? sizeof(fields.nonce) : 0);
    fields.resume_ms = speaker->how & (SESSION | AWAY) ? 1000 : 0;
    fields.resumes = fields.resume_ms > 0 && !(speaker->how & DIALS);
    must(tmsg_hello_encode(&fields, hello, sizeof(hello), &bytes));
    for (size_t i = 0; i + 3 <= count; i += 3) {
        hello[tmsg_get_le(data + i, 2) % bytes] = data[i + 2];
    }
    tmsg_proof_hash(hello, bytes, speaker->mine);
    say(speaker, TMSG_FRAME_HELLO, hello, bytes);
}

/* Proofs of the key, as many as there are bytes, each changed by one. */
static void say_proofs(speaker_t *speaker, const uint8_t *data, size_t count)
{
    uint8_t key[TMSG_KEY_BYTES], transcript[TMSG_HASH_BYTES];
    uint8_t list[40 * TMSG_PROOF_BYTES];

    count = count > 40 ? 40 : count;
    keys_of(1, key);
    transcript_of(speaker, transcript);
    for (size_t i = 0; i < count; i++) {
        uint8_t *proof = list + i * TMSG_PROOF_BYTES;

        if (speaker->how & DIALS) {
            tmsg_proof_make(key, TMSG_ROLE_DIALLED, speaker->bound, proof);
        } else {
            tmsg_proof_make(key, TMSG_ROLE_DIALLING, transcript, proof);
        }
        proof[i % TMSG_PROOF_BYTES] ^= data[i];
    }
    if (!(speaker->how & DIALS)) {
        tmsg_proof_bind(transcript, list, count * TMSG_PROOF_BYTES,
                        speaker->bound);
    }
    say(speaker, TMSG_FRAME_PROOF, list, count * TMSG_PROOF_BYTES);
    if (speaker->how & DIALS) {
        protect(speaker);
    }
}

/* The dialled side keeps an address until it has a connect request. */
static void say_address(speaker_t *speaker, const uint8_t *data, size_t count)
{
    const tmsg_sealed_t sealed = {.address = data, .address_bytes = count};
    uint8_t frame[512] = {0};
    size_t bytes;

    if (!(speaker->how & DIALS) && count > 0) {
        must(tmsg_sealed_encode(&sealed, frame + 4, sizeof(frame) - 4, &bytes));
        say(speaker, TMSG_FRAME_ADDRESS, frame, 4 + bytes);
    }
}

static void act(speaker_t *speaker, uint8_t letter, const uint8_t *data,
                size_t count)
{
    speaker->passed = letter & 16 ? 1 + count % PASSED_MOST : 0;
    switch (letter & 32 ? HIGHER : letter % 16) {
    case HIGHER:
        say(speaker, 12 + letter % 16, data, count);
        break;
    case 0:
        put(speaker, data, count);
        break;
    case 12:
        say_hello(speaker, data, count);
        break;
    case 13:
        say_proofs(speaker, data, count);
        break;
    case 14:
        say_address(speaker, data, count);
        break;
    case 15:
        put(speaker, TMSG_FRAME_MAGIC, TMSG_FRAME_MAGIC_BYTES);
        break;
    default:
        say(speaker, letter % 16, data, count);
    }
    hear(speaker);
}

static bool is_idle(void)
{
    const tmsg_worker_t *worker = tried.side.worker;
    bool idle = true;

    for (uint32_t i = 0; i < worker->endpoint_slots; i++) {
        idle &= worker->endpoints[i] == NULL;
    }
    return idle && tried.listeners[0]->handshakes == 0 &&
           tried.listeners[1]->handshakes == 0;
}

/* It hangs up, and of the conversation nothing is left. */
static void close_speaker(speaker_t *speaker)
{
    int rounds = 0;

    close(speaker->fd);
    tmsg_frame_free(&speaker->in);
    while (speaker->endpoint != NULL && !(speaker->how & AWAY) &&
           tmsg_endpoint_status(speaker->endpoint) >= 0) {
        must_true(rounds++ < ROUNDS_MOST);
        progress();
    }
    if (speaker->endpoint != NULL) {
        if (!(speaker->how & AWAY)) {
            must_say(tmsg_endpoint_error(speaker->endpoint), tried.url);
        }
        tmsg_endpoint_destroy(speaker->endpoint);
    }
    while (!is_idle()) {
        must_true(rounds++ < ROUNDS_MOST);
        progress();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    speaker_t speaker = {.how = size > 0 ? data[0] : 0};
    size_t at = 1;

    if (tried.side.worker == NULL) {
        begin();
    }
    open_speaker(&speaker);
    hear(&speaker);
    while (at + 2 <= size) {
        size_t count = data[at + 1];

        count = count < size - at - 2 ? count : size - at - 2;
        act(&speaker, data[at], data + at + 2, count);
        at += 2 + count;
    }
    close_speaker(&speaker);
    return 0;
}
