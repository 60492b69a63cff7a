/* SPDX-License-Identifier: BSD-3-Clause */
/* Encodes, checks and applies what the two sides of a session tell each other
 * when it gets another connection. There is one record for each channel;
 * docs/wire/connection.md has its bytes. Sequence numbers are compared modulo
 * 2^32. */
#include <string.h>

#include "am/boot/refusal.h"
#include "am/endpoint/consumer.h"
#include "am/endpoint/session.h"
#include "am/recv/deliver.h"
#include "am/recv/receive.h"
#include "am/session/resume.h"
#include "core/bytes.h"

#define LENGTH_BYTES 4
/* A record has so many bytes without its lists and its length. */
#define RECORD_BYTES 26u
#define ENTRY_BYTES 8u /* bytes of an entry of any list */
/* So many bytes count the entries of the third list, which streams have. */
#define COUNT_BYTES 4u
#define ENTRIES_MOST UINT16_MAX
/* Refusals are remembered for the last so many messages only. */
#define REMEMBERED_MOST (1u << 30)

typedef struct {
    uint16_t channel;
    uint32_t received; /* all messages below this number have come */
    uint32_t taken; /* the application has taken all received ones below this */
    uint32_t consumed; /* messages taken or refused, in all */
    uint32_t known;    /* refusals are remembered from this number on */
    uint32_t sent;     /* number of the next message that its writer sends */
    uint16_t outcome_count, kept_count;
    const uint8_t *outcomes; /* list of [sequence u32][status i32] */
    /* Each [first u32][count u32] is a range of messages that can be sent
     * again. */
    const uint8_t *kept;
    uint32_t ahead_count; /* entries of `ahead` */
    /* Each [first u32][count u32] is a range of messages from `taken` on that
     * were taken, too. */
    const uint8_t *ahead;
} record_t;

static bool is_before(uint32_t a, uint32_t b) { return (int32_t)(a - b) < 0; }

/* This record says where lists are written to. Entries that do not fit are
 * counted all the same. */
typedef struct {
    uint8_t *at;
    size_t left;
    unsigned count;
    bool full;
} list_t;

static void add_entry(list_t *list, uint32_t a, uint32_t b)
{
    list->count++;
    if (list->left < ENTRY_BYTES || list->count > ENTRIES_MOST) {
        list->full = true;
        return;
    }
    list->at = tmsg_put_le(list->at, a, 4);
    list->at = tmsg_put_le(list->at, b, 4);
    list->left -= ENTRY_BYTES;
}

/* Returns whether a refusal is so old that its number is about to be another
 * message's. */
static bool is_forgotten(const tmsg_channel_t *channel,
                         const tmsg_outcome_t *outcome)
{
    return channel->received_messages - outcome->delivered >= REMEMBERED_MOST;
}

static void add_outcomes(const tmsg_channel_t *channel, list_t *list)
{
    const tmsg_resume_t *resume = channel->endpoint->resume;
    const tmsg_message_t *message = channel->rx;

    for (unsigned i = 0; i < resume->outcome_count; i++) {
        const tmsg_outcome_t *outcome = &resume->outcomes[i];

        if (outcome->channel == channel->number &&
            !is_forgotten(channel, outcome)) {
            add_entry(list, outcome->sequence, (uint32_t)outcome->status);
        }
    }
    for (; message != NULL; message = message->next_in_order) {
        add_entry(list, message->head.sequence, (uint32_t)message->refusal);
    }
}

/* Adds ranges of messages that can be sent again. The sends are in the order of
 * their numbers. */
static void add_kept(const tmsg_channel_t *channel, list_t *list)
{
    uint32_t first = 0, count = 0;

    for (tmsg_node_t *node = channel->endpoint->posted.head; node != NULL;
         node = node->next) {
        const tmsg_send_t *send = TMSG_CONTAINER_OF(node, tmsg_send_t, node);

        if (send->channel != channel) {
            continue;
        }
        if (count > 0 && send->sequence == first + count) {
            count++;
            continue;
        }
        if (count > 0) {
            add_entry(list, first, count);
        }
        first = send->sequence;
        count = 1;
    }
    if (count > 0) {
        add_entry(list, first, count);
    }
}

static uint32_t unread_at(tmsg_node_t *node)
{
    return TMSG_CONTAINER_OF(node, tmsg_message_t, own_queue)->head.sequence;
}

/* Adds ranges of messages that were taken behind the first unread one: the gaps
 * between unread ones. */
static void add_ahead(const tmsg_channel_t *channel, list_t *list)
{
    tmsg_node_t *next, *node = channel->rx_unread.head;

    for (; node != NULL; node = next) {
        uint32_t first = unread_at(node) + 1, end;

        next = node->next;
        end = next == NULL ? channel->rx_sequence : unread_at(next);
        if (end != first) {
            add_entry(list, first, end - first);
        }
    }
}

/* Writes the third list, with its count before it. */
static void put_ahead(const tmsg_channel_t *channel, list_t *list)
{
    uint8_t *count = list->at;

    if (list->left < COUNT_BYTES) {
        list->full = true;
        return;
    }
    list->at += COUNT_BYTES;
    list->left -= COUNT_BYTES;
    list->count = 0;
    add_ahead(channel, list);
    tmsg_put_le(count, list->count, COUNT_BYTES);
}

/* Returns the number from which on refusals are remembered. They are not
 * remembered for half the range of sequence numbers. */
static uint32_t known_from(const tmsg_channel_t *channel)
{
    uint32_t remembered = channel->rx_sequence - channel->rx_known;

    return remembered > REMEMBERED_MOST ? channel->rx_sequence - REMEMBERED_MOST
                                        : channel->rx_known;
}

/* Writes a channel's record. From here on the peer may rely on what it is told,
 * so rx_known and rx_credited change. Returns false if there is no room for the
 * record. */
static bool put_record(tmsg_channel_t *channel, list_t *out)
{
    uint8_t *begin = out->at, *to = out->at + LENGTH_BYTES;
    list_t list = {to + RECORD_BYTES, 0, 0, false};
    unsigned outcomes, kept;

    if (out->left < LENGTH_BYTES + RECORD_BYTES) {
        return false;
    }
    list.left = out->left - LENGTH_BYTES - RECORD_BYTES;
    channel->rx_known = known_from(channel);
    add_outcomes(channel, &list);
    outcomes = list.count;
    list.count = 0;
    add_kept(channel, &list);
    kept = list.count;
    if (tmsg_channel_is_stream(channel->number)) {
        put_ahead(channel, &list);
    }
    if (list.full) {
        return false;
    }
    to = tmsg_put_le(to, channel->number, 2);
    to = tmsg_put_le(to, channel->rx_sequence, 4);
    to = tmsg_put_le(to, channel->rx_taken, 4);
    to = tmsg_put_le(to, channel->rx_consumed, 4);
    to = tmsg_put_le(to, channel->rx_known, 4);
    to = tmsg_put_le(to, channel->tx_sequence, 4);
    to = tmsg_put_le(to, outcomes, 2);
    tmsg_put_le(to, kept, 2);
    channel->rx_credited = channel->rx_consumed;
    tmsg_put_le(begin, (size_t)(list.at - begin) - LENGTH_BYTES, LENGTH_BYTES);
    out->at = list.at;
    out->left = list.left;
    return true;
}

static tmsg_status_t state_too_long(void)
{
    return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                          "the state of the session is too long to be told");
}

/* Writes the channels in the order of their numbers. */
tmsg_status_t tmsg_resume_encode(tmsg_endpoint_t *endpoint, uint8_t *buffer,
                                 size_t capacity, size_t *bytes_p)
{
    list_t out = {buffer, capacity, 0, false};

    for (uint32_t i = 0; i <= endpoint->channels.slots; i++) {
        tmsg_channel_t *channel = tmsg_channel_find(endpoint, (uint16_t)i);

        if (channel != NULL && !put_record(channel, &out)) {
            return state_too_long();
        }
    }
    if (endpoint->channels.calls != NULL &&
        !put_record(endpoint->channels.calls, &out)) {
        return state_too_long();
    }
    for (uint32_t i = 0; i < endpoint->channels.stream_slots; i++) {
        if (endpoint->channels.streams[i] != NULL &&
            !put_record(endpoint->channels.streams[i], &out)) {
            return state_too_long();
        }
    }
    *bytes_p = (size_t)(out.at - buffer);
    return TMSG_OK;
}

static tmsg_status_t wrong_state(const char *what)
{
    return tmsg_error_set(TMSG_ERR_MALFORMED, "a session's state: %s", what);
}

static tmsg_status_t lists_too_long(void)
{
    return wrong_state("lists that are longer than their record");
}

/* Reads the third list. `bytes` bytes of the record are left for it. */
static tmsg_status_t read_ahead(record_t *record, const uint8_t *at,
                                size_t bytes)
{
    record->ahead_count = 0;
    record->ahead = at + COUNT_BYTES;
    if (!tmsg_channel_is_stream(record->channel) || bytes < COUNT_BYTES) {
        return TMSG_OK;
    }
    record->ahead_count = (uint32_t)tmsg_get_le(at, COUNT_BYTES);
    return record->ahead_count > (bytes - COUNT_BYTES) / ENTRY_BYTES
               ? lists_too_long()
               : TMSG_OK;
}

/* Takes the next record off the data. Skips what follows its lists. */
static tmsg_status_t next_record(const uint8_t **data, size_t *left,
                                 record_t *record)
{
    const uint8_t *at = *data + LENGTH_BYTES;
    size_t bytes, lists;

    if (*left < LENGTH_BYTES + RECORD_BYTES) {
        return wrong_state("cut off");
    }
    bytes = (size_t)tmsg_get_le(*data, LENGTH_BYTES);
    if (bytes > *left - LENGTH_BYTES || bytes < RECORD_BYTES) {
        return wrong_state("a record of an impossible length");
    }
    *data += LENGTH_BYTES + bytes;
    *left -= LENGTH_BYTES + bytes;
    record->channel = (uint16_t)tmsg_get_le(at, 2);
    record->received = (uint32_t)tmsg_get_le(at + 2, 4);
    record->taken = (uint32_t)tmsg_get_le(at + 6, 4);
    record->consumed = (uint32_t)tmsg_get_le(at + 10, 4);
    record->known = (uint32_t)tmsg_get_le(at + 14, 4);
    record->sent = (uint32_t)tmsg_get_le(at + 18, 4);
    record->outcome_count = (uint16_t)tmsg_get_le(at + 22, 2);
    record->kept_count = (uint16_t)tmsg_get_le(at + 24, 2);
    record->outcomes = at + RECORD_BYTES;
    record->kept =
        record->outcomes + (size_t)record->outcome_count * ENTRY_BYTES;
    bytes -= RECORD_BYTES;
    lists = ((size_t)record->outcome_count + record->kept_count) * ENTRY_BYTES;
    return lists > bytes
               ? lists_too_long()
               : read_ahead(record, record->outcomes + lists, bytes - lists);
}

static uint32_t number_at(const uint8_t *list, unsigned i, unsigned which)
{
    return (uint32_t)tmsg_get_le(list + (size_t)i * ENTRY_BYTES + which * 4, 4);
}

/* Checks that ranges ascend within [begin, end). Otherwise the error is
 * `otherwise`. */
static tmsg_status_t judge_ranges(const uint8_t *list, uint32_t ranges,
                                  uint32_t begin, uint32_t end,
                                  const char *otherwise)
{
    for (uint32_t i = 0; i < ranges; i++) {
        uint32_t first = number_at(list, i, 0);
        uint32_t count = number_at(list, i, 1);

        if (is_before(first, begin) || is_before(end, first) ||
            count > end - first) {
            return wrong_state(otherwise);
        }
        begin = first + count;
    }
    return TMSG_OK;
}

/* Checks what the peer says of this side's messages: it lies between what the
 * peer said before and what this side has sent. */
static tmsg_status_t judge_received(const tmsg_channel_t *channel,
                                    const record_t *record)
{
    uint32_t told =
        channel->tx_window - channel->endpoint->peer_hello.queue_depth;

    if (is_before(channel->tx_sequence, record->received) ||
        is_before(record->received, told)) {
        return wrong_state(
            "messages received that were never sent, or no more");
    }
    if (is_before(record->consumed, told) ||
        is_before(record->received, record->consumed) ||
        is_before(record->received, record->taken) ||
        is_before(record->received, record->known)) {
        return wrong_state("messages taken that were not received");
    }
    for (unsigned i = 0; i < record->outcome_count; i++) {
        if (!is_before(number_at(record->outcomes, i, 0),
                       channel->tx_sequence) ||
            (int32_t)number_at(record->outcomes, i, 1) >= 0) {
            return wrong_state("an impossible refusal");
        }
    }
    return judge_ranges(record->ahead, record->ahead_count, record->taken,
                        record->received,
                        "messages taken that were not received");
}

/* Checks what the peer says of its own messages: it goes on from where this
 * side is, within the window. */
static tmsg_status_t judge_sent(const tmsg_channel_t *channel,
                                const record_t *record)
{
    if (is_before(record->sent, channel->rx_sequence) ||
        record->sent - channel->rx_credited >
            channel->endpoint->worker->queue_depth) {
        return wrong_state("an impossible number of messages sent");
    }
    return judge_ranges(record->kept, record->kept_count,
                        record->sent - (uint32_t)INT32_MAX, record->sent,
                        "messages kept that were never sent");
}

/* Returns the record of a channel, or one of zeros if the peer has never used
 * the channel. */
static record_t record_of(const uint8_t *data, size_t bytes, uint16_t channel)
{
    record_t record;

    while (bytes > 0 && next_record(&data, &bytes, &record) == TMSG_OK) {
        if (record.channel == channel) {
            return record;
        }
    }
    return (record_t){.channel = channel};
}

/* Checks that all records can be read, and that no channel comes twice. */
static tmsg_status_t judge_records(tmsg_endpoint_t *endpoint,
                                   const uint8_t *data, size_t bytes)
{
    tmsg_status_t status = TMSG_OK;
    tmsg_channel_t *channel;
    uint32_t least = 0;
    record_t record;

    while (bytes > 0 && status == TMSG_OK) {
        status = next_record(&data, &bytes, &record);
        if (status == TMSG_OK &&
            (record.channel < least ||
             (record.channel >= endpoint->worker->channels &&
              record.channel != TMSG_CHANNEL_CALLS &&
              !tmsg_channel_is_stream(record.channel) &&
              tmsg_channel_find(endpoint, record.channel) == NULL))) {
            status =
                wrong_state("a channel that occurs twice or does not exist");
        }
        if (status == TMSG_OK) {
            /* No message may have come on the channel yet. */
            status = tmsg_channel_get(endpoint, record.channel, &channel);
        }
        least = record.channel + 1u;
    }
    return status;
}

tmsg_status_t tmsg_resume_judge(tmsg_endpoint_t *endpoint, const uint8_t *data,
                                size_t bytes)
{
    tmsg_status_t status = judge_records(endpoint, data, bytes);
    const tmsg_channel_t *channel = &endpoint->channels.zero;

    for (; channel != NULL && status == TMSG_OK; channel = channel->next) {
        record_t record = record_of(data, bytes, channel->number);

        status = judge_received(channel, &record);
        if (status == TMSG_OK) {
            status = judge_sent(channel, &record);
        }
    }
    return status;
}

/* Returns the status that a message was refused with, or 0 if no refusal is
 * known. */
static int32_t refusal_of(const record_t *record, uint32_t sequence)
{
    for (unsigned i = 0; i < record->outcome_count; i++) {
        if (number_at(record->outcomes, i, 0) == sequence) {
            return (int32_t)number_at(record->outcomes, i, 1);
        }
    }
    return 0;
}

static bool was_taken(const record_t *record, uint32_t sequence)
{
    bool taken = is_before(sequence, record->taken);

    for (uint32_t i = 0; i < record->ahead_count && !taken; i++) {
        taken = sequence - number_at(record->ahead, i, 0) <
                number_at(record->ahead, i, 1);
    }
    return taken;
}

static void settle_send(tmsg_send_t *send, const record_t *record)
{
    tmsg_endpoint_t *endpoint = send->endpoint;
    uint32_t sequence = send->sequence;
    int32_t refusal = refusal_of(record, sequence);

    send->again = false;
    if (refusal != 0) {
        tmsg_status_t status = tmsg_control_failure(refusal);

        tmsg_send_answer(send, status,
                         "%s: refused by the receiver, when the connection "
                         "broke: %s",
                         endpoint->peer, tmsg_status_name(status));
    } else if (!is_before(sequence, record->received)) {
        send->again = true;
        endpoint->resume->again_count++;
        return;
    } else if (is_before(sequence, record->known)) {
        tmsg_send_answer(send, TMSG_ERR_PEER_LOST,
                         "%s: the connection broke, and whether the message "
                         "was refused is not known any more",
                         endpoint->peer);
    } else if (was_taken(record, sequence)) {
        tmsg_send_answer(send, TMSG_OK, "%s", "");
    }
    send->ucx_status = TMSG_UCX_OK; /* the message has come */
    tmsg_send_settle(send);
}

/* Returns whether the peer can send a message again. Ranges and the numbers
 * asked for ascend: *at follows them, beginning at 0. */
static bool is_kept(const record_t *record, unsigned *at, uint32_t sequence)
{
    while (*at < record->kept_count &&
           !is_before(sequence, number_at(record->kept, *at, 0) +
                                    number_at(record->kept, *at, 1))) {
        (*at)++;
    }
    return *at < record->kept_count &&
           !is_before(sequence, number_at(record->kept, *at, 0));
}

static void settle_sends(tmsg_channel_t *channel, const record_t *record)
{
    tmsg_node_t *next, *node = channel->endpoint->posted.head;

    for (; node != NULL; node = next) {
        tmsg_send_t *send = TMSG_CONTAINER_OF(node, tmsg_send_t, node);

        next = node->next;
        if (send->channel == channel) {
            settle_send(send, record);
        }
    }
}

static tmsg_status_t apply_record(tmsg_channel_t *channel,
                                  const record_t *record)
{
    tmsg_status_t status = TMSG_OK;
    unsigned at = 0;

    channel->tx_window =
        record->consumed + channel->endpoint->peer_hello.queue_depth;
    settle_sends(channel, record);
    for (uint32_t i = channel->rx_sequence;
         i != record->sent && status == TMSG_OK; i++) {
        if (!is_kept(record, &at, i)) {
            status = tmsg_message_lost(channel, i);
        }
    }
    tmsg_messages_deliver(channel);
    return status;
}

tmsg_status_t tmsg_resume_apply(tmsg_endpoint_t *endpoint, const uint8_t *data,
                                size_t bytes)
{
    tmsg_channel_t *channel = &endpoint->channels.zero;
    tmsg_status_t status = TMSG_OK;

    endpoint->resume->again_count = 0;
    for (; channel != NULL && status == TMSG_OK; channel = channel->next) {
        record_t record = record_of(data, bytes, channel->number);

        status = apply_record(channel, &record);
    }
    return status;
}
