/* SPDX-License-Identifier: BSD-3-Clause */
/* fakes/ucx.h - UCX's endpoints without what carries them. Contexts, workers
 * and addresses are UCX's own; active messages between workers of this process
 * lie in a list, and whoever has the turn says which of them comes next, which
 * of UCX's reports, and what becomes of it: in any order, for UCX promises
 * none. What UCX may read or write until it reports is read and written as late
 * as that, so that memory which was given back too early is found, by a
 * sanitizer or by what arrives.
 *
 * A program takes it by having fakes/ucx.c among its sources. One thread at a
 * time, and polled: nobody is woken. */
#ifndef TMSG_TESTS_FAKES_UCX_H
#define TMSG_TESTS_FAKES_UCX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An active message that is about to arrive, its header and payload on the
 * heap. */
typedef struct {
    uint8_t *header;
    size_t header_bytes;
    uint8_t *payload;
    size_t payload_bytes;
    bool rendezvous;
    bool replies; /* it brings an endpoint to reply to */
    bool changed; /* something of this was */
    bool again;   /* as it was it comes once more */
} fake_am_t;

typedef struct {
    /* A number below `below`; 0 is what a UCX with one lane does. NULL:
     * always 0. */
    uint64_t (*choose)(void *arg, uint64_t below);
    /* May change a message, and says so. NULL: all are honest. False: it does
     * not arrive. */
    bool (*change)(void *arg, fake_am_t *message);
    void *arg;
    unsigned ahead;   /* of so many events any may be the next; 0: the first */
    unsigned failing; /* one of so many rendezvous fails; 0: none */
    unsigned fetched; /* since one has failed */
    bool by_tcp;      /* say that it is TCP, not shared memory */
    uint64_t memory_types; /* it knows these beside the host's, a bit each */
    /* Copies to or from memory of any of these types. NULL: memcpy(). */
    void (*move)(void *to, const void *from, size_t bytes);
    uint64_t arrived, reported, overtook, failed; /* counted */
    uint64_t rendezvous;                          /* of those that arrived */
    unsigned fetching, most_fetching; /* at a time, now and so far */
} fake_ucx_t;

extern fake_ucx_t fake_ucx;

/* Whether anything is still to happen. */
bool fake_ucx_is_busy(void);

#endif
