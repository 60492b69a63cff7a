/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* For how long a TCP connection has not been acknowledged, by what the kernel
 * says of it at one look after the other. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <linux/tcp.h>

#include "am/net/unacked.h"

#define MS UINT64_C(1000000)
#define START (UINT64_C(1000000) * MS)
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* A look, and what follows. */
typedef struct {
    uint32_t at_ms;
    uint32_t in_flight, retransmits, probes, heard_ms, sent_ms;
    uint32_t unacked_ms;
    bool again;
    uint32_t window, bytes_acked;
} look_t;

static void follow(const look_t *looks, size_t count)
{
    tmsg_unacked_t unacked = {0};

    for (size_t i = 0; i < count; i++) {
        const look_t *look = &looks[i];
        const struct tcp_info info = {
            .tcpi_unacked = look->in_flight,
            .tcpi_retransmits = (uint8_t)look->retransmits,
            .tcpi_probes = (uint8_t)look->probes,
            .tcpi_last_ack_recv = look->heard_ms,
            .tcpi_last_data_sent = look->sent_ms,
            .tcpi_snd_wnd = look->window,
            .tcpi_bytes_acked = look->bytes_acked,
        };

        tmsg_unacked_judge(&unacked, &info, START + look->at_ms * MS);
        cr_expect(eq(u64, unacked.ns / MS, look->unacked_ms), "look %zu", i);
        cr_expect(unacked.again == look->again, "look %zu", i);
    }
}

Test(unacked, an_idle_connection_waits_for_nothing)
{
    const look_t looks[] = {
        {0, 0, 0, 0, 0, 0, 0, false, 0, 0},
        {5000, 0, 0, 0, 5000, 5000, 0, false, 0, 0},
        {3600000, 0, 0, 0, 3600000, 3600000, 0, false, 0, 0}};

    follow(looks, COUNT(looks));
}

Test(unacked, what_is_sent_after_an_idle_hour_has_not_waited_for_one)
{
    const look_t looks[] = {{0, 0, 0, 0, 3600000, 3600000, 0, false, 0, 0},
                            {1000, 1, 0, 0, 3601000, 0, 0, false, 0, 0},
                            {1001, 0, 0, 0, 1, 1, 0, false, 0, 0}};

    follow(looks, COUNT(looks));
}

Test(unacked, what_is_never_acknowledged_waits_since_it_was_seen)
{
    const look_t looks[] = {{0, 1, 0, 0, 3600000, 0, 0, false, 0, 0},
                            {1000, 1, 2, 0, 3601000, 400, 1000, true, 0, 0},
                            {5000, 1, 4, 0, 3605000, 2000, 5000, true, 0, 0}};

    follow(looks, COUNT(looks));
}

/* What the first look finds on its way was sent before, and is not older than
 * the latest acknowledgement. */
Test(unacked, the_first_look_counts_what_is_certain)
{
    const look_t older[] = {{0, 1, 3, 0, 9000, 1700, 1700, true, 0, 0},
                            {3000, 1, 4, 0, 12000, 2000, 4700, true, 0, 0}};
    const look_t newer[] = {{0, 1, 0, 0, 300, 1700, 300, false, 0, 0}};

    follow(older, COUNT(older));
    follow(newer, COUNT(newer));
}

Test(unacked, each_acknowledgement_is_an_answer)
{
    const look_t looks[] = {{0, 9, 0, 0, 3, 0, 0, false, 1000, 10},
                            {5000, 9, 0, 0, 2, 0, 0, false, 1000, 20},
                            {10000, 9, 1, 0, 700, 500, 500, false, 1000, 30}};

    follow(looks, COUNT(looks));
}

/* The peer's application reads nothing for minutes, and its kernel answers. */
Test(unacked, a_full_window_is_not_silence)
{
    const look_t looks[] = {
        {0, 0, 0, 1, 1200, 1200, 1200, false, 0, 0},
        {5000, 0, 0, 0, 1000, 6200, 0, false, 0, 0},
        {65000, 0, 0, 1, 60000, 66200, 60000, false, 0, 0},
        {70000, 0, 0, 0, 5000, 71200, 0, false, 0, 0},
        /* One probe was lost. */
        {190000, 0, 0, 2, 125000, 191200, 125000, false, 0, 0}};

    follow(looks, COUNT(looks));
}

/* The peer does not hear us, and sends again what it sent: its packets come
 * with acknowledgements of nothing new. */
Test(unacked, packets_that_acknowledge_nothing_are_no_answer)
{
    const look_t looks[] = {{0, 1, 0, 0, 500, 0, 0, false, 1000, 7},
                            {2000, 1, 3, 0, 400, 600, 2000, true, 1000, 7},
                            {5000, 1, 5, 0, 900, 200, 5000, true, 1000, 7},
                            {6000, 1, 0, 0, 100, 100, 100, false, 1000, 8}};

    follow(looks, COUNT(looks));
}

Test(unacked, probes_without_an_answer_are_silence)
{
    const look_t looks[] = {{0, 0, 0, 0, 200, 9000, 0, false, 0, 0},
                            {4000, 0, 0, 3, 4200, 13000, 4200, true, 0, 0},
                            {5000, 0, 0, 4, 5200, 14000, 5200, true, 0, 0}};

    follow(looks, COUNT(looks));
}

Test(unacked, no_connection_waits_for_nothing)
{
    tmsg_unacked_t unacked = {START, 7, 5000 * MS, true};

    tmsg_unacked_look(&unacked, -1);
    cr_expect(eq(u64, unacked.since_ns, 0));
    cr_expect(eq(u64, unacked.ns, 0));
    cr_expect(not(unacked.again));
}
