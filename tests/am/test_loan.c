/* SPDX-License-Identifier: BSD-3-Clause */
/* Large payloads over shared memory, which their receiver reads where they lie:
 * what is lent, when it is the sender's again, and what a peer may lie about.
 */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "am/control.h"
#include "am/endpoint.h"
#include "am/loan.h"
#include "am/message.h"
#include "am/parts_layout.h"
#include "core/bytes.h"
#include "support/joined.h"
#include "support/sample.h"

#define LARGE ((size_t)9 << 20)
#define HUGE ((size_t)96 << 20)

static uint64_t lent(const tmsg_endpoint_t *endpoint)
{
    return endpoint->stats.sent_by_lane;
}

static tmsg_request_t *send_bytes(tmsg_endpoint_t *endpoint, uint64_t seed,
                                  size_t bytes, unsigned flags)
{
    return send_map(endpoint, sample_bytes(seed, bytes), flags);
}

static void take_bytes(pair_t *pair, uint64_t seed, size_t bytes)
{
    tmsg_message_t *message = pair_take(pair, &pair->a);

    sample_check_bytes(seed, bytes, tmsg_message_map(message));
    tmsg_message_destroy(message);
}

/* All that is not empty is lent: one large, many middling, many small, names
 * that do not fit into a header, and rows that are packed. */
static const sample_t kinds[] = {
    {.seed = 1, .tensors = 1, .shape = SAMPLE_VECTOR, .elements = 1 << 24},
    {.seed = 2, .tensors = 40, .shape = SAMPLE_VECTOR, .elements = 20000},
    {.seed = 3, .tensors = 4000, .shape = SAMPLE_VECTOR, .elements = 60},
    {.seed = 4, .tensors = 3, .shape = SAMPLE_VECTOR, .elements = 700001},
    {.seed = 5,
     .tensors = 300,
     .name_bytes = 2000,
     .elements = 400,
     .shape = SAMPLE_VECTOR},
};

#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static void carry(link_t link, drive_t drive)
{
    static const unsigned flags[] = {0, TMSG_SEND_ACKED, TMSG_SEND_VERIFY};
    pair_t pair;

    setenv("TENSORMSG_THRESHOLDS", "shm.lane_bytes=1,shm.part_bytes=1", 1);
    pair_open(&pair, link, drive, NULL, NULL);
    for (size_t i = 0; i < KINDS * 3; i++) {
        const sample_t *kind = &kinds[i % KINDS];
        tmsg_request_t *there =
            send_map(pair.to_a, sample_make(kind), flags[i / KINDS]);
        tmsg_request_t *back =
            send_map(pair.to_b, sample_make(kind), flags[i / KINDS]);
        tmsg_message_t *at_a = pair_take(&pair, &pair.a);
        tmsg_message_t *at_b = pair_take(&pair, &pair.b);

        sample_check(kind, tmsg_message_map(at_a));
        sample_check(kind, tmsg_message_map(at_b));
        tmsg_message_destroy(at_a);
        tmsg_message_destroy(at_b);
        must(pair_finish(&pair, there));
        must(pair_finish(&pair, back));
    }
    cr_expect(eq(u64, lent(pair.to_a), KINDS * 3));
    cr_expect(eq(u64, pair.to_a->stats.received_by_lane, KINDS * 3));
    pair_close(&pair);
}

Test(loan, carries_what_is_large) { carry(LINK_SHM, DRIVE_POLLING); }
Test(loan, carries_by_descriptor) { carry(LINK_UNIX, DRIVE_FD); }
Test(loan, carries_by_thread) { carry(LINK_SHM, DRIVE_THREAD); }

static void go_without(link_t link)
{
    tmsg_request_t *sent;
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    sent = send_bytes(pair.to_a, 1, LARGE, 0);
    take_bytes(&pair, 1, LARGE);
    must(pair_finish(&pair, sent));
    cr_expect(not(tmsg_loans_are_made(pair.to_a)));
    pair_close(&pair);
}

Test(loan, is_none_by_tcp) { go_without(LINK_TCP); }
Test(loan, is_none_by_blob) { go_without(LINK_BLOB); }

Test(loan, is_made_of_what_has_parts_and_is_not_asked_to_go_otherwise)
{
    static const struct {
        size_t bytes;
        int32_t way;
        uint64_t lent;
    } rows[] = {{1 << 20, TMSG_WAY_AUTO, 0},
                {LARGE, TMSG_WAY_AUTO, 1},
                {LARGE, TMSG_WAY_PARTS, 0},
                {LARGE, TMSG_WAY_SCATTER, 0}};
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const tmsg_send_params_t params = {
            .field_mask = TMSG_SEND_PARAM_WAY,
            .way = rows[i].way,
        };
        tmsg_map_t *map = sample_bytes(i, rows[i].bytes);
        uint64_t before = lent(pair.to_a);
        tmsg_request_t *sent;

        must(tmsg_endpoint_send(pair.to_a, map, &params, &sent));
        tmsg_map_destroy(map);
        take_bytes(&pair, i, rows[i].bytes);
        must(pair_finish(&pair, sent));
        cr_expect(eq(u64, lent(pair.to_a) - before, rows[i].lent), "row %zu",
                  i);
    }
    pair_close(&pair);
}

/* A small message on another channel is there while the large one is read. */
Test(loan, small_messages_pass)
{
    const tmsg_send_params_t other = {.field_mask = TMSG_SEND_PARAM_CHANNEL,
                                      .channel = 3};
    tmsg_request_t *large, *small;
    tmsg_message_t *message;
    tmsg_map_t *map = sample_bytes(2, 100);
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    large = send_bytes(pair.to_a, 1, HUGE, 0);
    must(tmsg_endpoint_send(pair.to_a, map, &other, &small));
    tmsg_map_destroy(map);
    message = pair_take(&pair, &pair.a);
    cr_expect(eq(u16, tmsg_message_channel(message), 3));
    tmsg_message_destroy(message);
    take_bytes(&pair, 1, HUGE);
    must(pair_finish(&pair, small));
    must(pair_finish(&pair, large));
    pair_close(&pair);
}

static bool is_read(void *arg)
{
    const pair_t *pair = arg;
    const tmsg_message_t *message = pair->to_b->channels.zero.rx;

    return message != NULL && message->lent_parts;
}

/* A map that borrows what is freed as soon as it is the caller's again. */
static void free_buffer(void *arg)
{
    uint8_t *buffer = *(uint8_t **)arg;

    munmap(buffer, HUGE);
    *(uint8_t **)arg = NULL;
}

static bool is_free(void *arg) { return *(uint8_t **)arg == NULL; }

static tmsg_request_t *send_borrowed(pair_t *pair, uint8_t **buffer_p)
{
    const int64_t shape[] = {(int64_t)HUGE};
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS |
                                                     TMSG_SEND_PARAM_ON_RELEASE,
                                       .flags = TMSG_SEND_ACKED,
                                       .on_release = free_buffer,
                                       .on_release_arg = buffer_p};
    tmsg_tensor_t tensor = {
        NULL, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};
    tmsg_request_t *sent;
    tmsg_map_t *map;

    *buffer_p = mmap(NULL, HUGE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert(ne(ptr, *buffer_p, MAP_FAILED));
    memset(*buffer_p, 1, HUGE);
    tensor.data = *buffer_p;
    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "data", &tensor, NULL));
    must(tmsg_endpoint_send(pair->to_a, map, &params, &sent));
    tmsg_map_destroy(map);
    return sent;
}

static void check_next(pair_t *pair, uint64_t seed)
{
    tmsg_request_t *sent = send_bytes(pair->to_a, seed, LARGE, TMSG_SEND_ACKED);

    take_bytes(pair, seed, LARGE);
    must(pair_finish(pair, sent));
}

/* The buffer stays lent until the receiver has said that it reads no more. */
Test(loan, a_canceled_message_gives_its_memory_back_when_it_is_read_no_more)
{
    tmsg_request_t *sent;
    uint8_t *buffer;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    sent = send_borrowed(&pair, &buffer);
    pair_await(&pair, is_read, &pair, "its beginning");
    tmsg_request_cancel(sent);
    for (int i = 0; i < 1000; i++) {
        tmsg_worker_progress(pair.b.worker); /* the sender's */
    }
    cr_expect(ne(ptr, buffer, NULL), "it is being read");
    cr_expect(eq(int, pair_finish(&pair, sent), TMSG_CANCEL_PENDING));
    pair_await(&pair, is_free, &buffer, "its end");
    check_next(&pair, 4);
    cr_expect(eq(u64, pair.to_b->stats.aborted_messages, 1));
    pair_close(&pair);
}

static void refuse_first(void *arg, tmsg_incoming_t *incoming)
{
    int *count = arg;

    if ((*count)++ == 0) {
        tmsg_incoming_refuse(incoming, TMSG_ERR_REFUSED, "not the first");
    }
}

Test(loan, a_refused_message_is_not_read)
{
    int count = 0;
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_ON_HEADER,
                   .on_header = refuse_first,
                   .on_header_arg = &count}};
    tmsg_request_t *refused;
    uint8_t *buffer;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    refused = send_borrowed(&pair, &buffer);
    cr_expect(eq(int, pair_finish(&pair, refused), TMSG_ERR_REFUSED));
    pair_await(&pair, is_free, &buffer, "its memory");
    check_next(&pair, 2);
    pair_close(&pair);
}

/* Whoever of the two ends it, and however. */
static void end_amid(bool by_sender, void (*end)(tmsg_endpoint_t *endpoint))
{
    tmsg_request_t *sent;
    uint8_t *buffer;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    sent = send_borrowed(&pair, &buffer);
    pair_await(&pair, is_read, &pair, "its beginning");
    end(by_sender ? pair.to_a : pair.to_b);
    cr_expect(eq(int, pair_finish(&pair, sent), TMSG_ERR_CANCELED));
    pair_await(&pair, is_free, &buffer, "its memory");
    pair_drop(&pair);
}

static void destroy(tmsg_endpoint_t *endpoint)
{
    must(tmsg_endpoint_abort(endpoint, TMSG_ERR_CANCELED, "enough"));
}

Test(loan, ends_with_the_sender) { end_amid(true, destroy); }
Test(loan, ends_with_the_receiver) { end_amid(false, destroy); }

/* Memory that the kernel does not let be read is left to UCX, which finds the
 * same; by then it can be read. */
Test(loan, what_cannot_be_read_goes_by_ucx)
{
    tmsg_request_t *sent;
    tmsg_message_t *message;
    uint8_t *buffer;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    sent = send_borrowed(&pair, &buffer);
    pair_await(&pair, is_read, &pair, "its beginning");
    must_eq(mprotect(buffer, HUGE, PROT_NONE), 0);
    while (is_read(&pair)) {
        tmsg_worker_progress(pair.a.worker);
    }
    must_eq(mprotect(buffer, HUGE, PROT_READ), 0);
    message = pair_take(&pair, &pair.a);
    cr_expect(eq(u64, tmsg_map_size(tmsg_message_map(message)), 1));
    tmsg_message_destroy(message);
    must(pair_finish(&pair, sent));
    cr_expect(eq(u64, lent(pair.to_a), 0));
    cr_expect(eq(u64, pair.to_b->stats.received_by_lane, 0));
    pair_close(&pair);
}

static bool waits(void *arg)
{
    const pair_t *pair = arg;
    const tmsg_message_t *message = pair->to_b->channels.zero.rx;

    return message != NULL && message->by_lane;
}

/* What was asked for before is lent, and nothing from then on. */
Test(loan, is_not_asked_for_where_the_kernel_forbids_it)
{
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    tmsg_request_destroy(send_bytes(pair.to_a, 1, LARGE, 0));
    while (!waits(&pair)) {
        tmsg_worker_progress(pair.a.worker);
    }
    pair.to_b->unreadable = true;
    take_bytes(&pair, 1, LARGE);
    cr_expect(eq(u64, pair.to_b->stats.received_by_lane, 1));
    check_next(&pair, 2);
    cr_expect(eq(u64, pair.to_b->stats.received_by_lane, 1));
    pair_close(&pair);
}

/* A loan that says of a message what is not so. Its sender stands still. */
Test(loan, lies_end_the_connection_and_no_more)
{
    static const uint64_t few[] = {0, 4096}, none[] = {0, 0};
    static const struct {
        const uint64_t *places;
        uint32_t count;
        bool twice;
        const char *words; /* NULL: it goes by UCX */
    } rows[] = {{few, 1, false, "fewer bytes"},
                {none, 1, false, "fewer bytes"},
                {few, 1, true, "a loan"},
                {NULL, 1, false, NULL},
                {NULL, UINT32_MAX, false, NULL}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        static uint8_t bytes[4096];
        uint8_t place[TMSG_LOAN_PLACE_BYTES];
        const void *at = rows[i].places == NULL ? (void *)8 : place;
        tmsg_channel_t *channel;
        tmsg_message_t *message;
        pair_t pair;

        pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
        tmsg_request_destroy(send_bytes(pair.to_a, 1, LARGE, 0));
        while (!waits(&pair)) {
            tmsg_worker_progress(pair.a.worker);
        }
        message = pair.to_b->channels.zero.rx;
        channel = &pair.to_a->channels.zero;
        if (rows[i].places != NULL) {
            tmsg_put_le(place, (uint64_t)(uintptr_t)bytes, 8);
            tmsg_put_le(place + 8, rows[i].places[1], 8);
        }
        for (int j = 0; j <= rows[i].twice; j++) {
            tmsg_control_lend(channel, message->head.message_id,
                              message->head.sequence, at, rows[i].count);
        }
        if (rows[i].words == NULL) {
            take_bytes(&pair, 1, LARGE);
            pair_close(&pair);
            continue;
        }
        while (tmsg_endpoint_status(pair.to_b) == TMSG_OK) {
            tmsg_worker_progress(pair.a.worker);
        }
        cr_expect(eq(int, tmsg_endpoint_status(pair.to_b), TMSG_ERR_MALFORMED),
                  "row %zu", i);
        cr_expect(ne(ptr, strstr(tmsg_endpoint_error(pair.to_b), rows[i].words),
                     NULL),
                  "row %zu: %s", i, tmsg_endpoint_error(pair.to_b));
        pair_drop(&pair);
    }
}

/* A message comes by one way or the other: a part beside the loan would be
 * another's when it is put there. */
Test(loan, no_part_comes_beside_it)
{
    static const uint8_t bytes[16];
    tmsg_part_range_t range;
    tmsg_message_t *message;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    tmsg_request_destroy(send_bytes(pair.to_a, 1, HUGE, 0));
    pair_await(&pair, is_read, &pair, "its beginning");
    message = pair.to_b->channels.zero.rx;
    cr_expect(tmsg_parts_layout_claim(message, 0, 1 << 18, &range) != NULL,
              "while it is lent");
    tmsg_parts_layout_whole(message);
    message->lent_parts = false;
    cr_expect(tmsg_parts_layout_claim(message, 0, 1 << 18, &range) != NULL,
              "once it is whole");
    message->lent_parts = true;
    pair_drop(&pair);

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    tmsg_request_destroy(send_bytes(pair.to_a, 1, LARGE, 0));
    while (!waits(&pair)) {
        tmsg_worker_progress(pair.a.worker);
    }
    message = pair.to_b->channels.zero.rx;
    cr_expect(tmsg_parts_layout_claim(message, 0, 1 << 18, &range) == NULL);
    tmsg_control_lend(&pair.to_a->channels.zero, message->head.message_id,
                      message->head.sequence, bytes, 1);
    cr_expect(eq(int, pair_end_of(&pair, pair.to_b), TMSG_ERR_MALFORMED));
    pair_drop(&pair);
}

/* Who waits by the descriptor is not left asleep before what is to be read. */
Test(loan, wakes_who_progresses_once_and_sleeps)
{
    tmsg_request_t *sent;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_FD, NULL, NULL);
    sent = send_bytes(pair.to_a, 1, HUGE, TMSG_SEND_ACKED);
    take_bytes(&pair, 1, HUGE);
    must(pair_finish(&pair, sent));
    pair_close(&pair);
}
