/* SPDX-License-Identifier: BSD-3-Clause */
/* support/paired_races.h - two deeds done at the same time by two threads, to
 * one call or stream after the other: for tests that race every pair of what
 * may end one. A round is one of them; a batch is some rounds that are under
 * way at once on one connection, each in a slot of its own, in which both
 * threads keep step. */
#ifndef TMSG_TESTS_PAIRED_RACES_H
#define TMSG_TESTS_PAIRED_RACES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rpc/server.h"
#include "support/peers.h"

#define RACE_SLOTS 16

/* Who gets what a handler keeps. */
enum { RACE_OPEN, RACE_TAKEN, RACE_SHUT };

/* What one test does. */
typedef struct {
    const char *name;         /* under which a soak keeps its place */
    void (*offer)(void *arg); /* its method, by the server */
    void (*begin)(void *arg); /* the rounds of a slice */
    void (*play)(void *arg);  /* a batch */
    void (*act)(void *arg, unsigned slot, int deed, bool second);
    bool (*has_all)(void *arg); /* that was under way in the slice */
    void (*end)(void *arg);     /* of the slice, when all is gone */
    int deadline;               /* this deed comes by itself */
    int drain, disconnect;      /* these are done to all slots at once, with
                                 * the first: slots are few, or one */
} races_ops_t;

typedef struct {
    const races_ops_t *ops;
    void *arg;
    side_t a, b; /* a serves; each has a thread of its own */
    tmsg_server_t *server;
    tmsg_endpoint_t *to_a, *to_b;
    /* Of the slice: */
    int deeds[2]; /* of the first thread, and of the second */
    size_t rounds;
    /* Of the batch: */
    size_t from; /* its first round */
    unsigned slots;
    /* Inside: */
    uint64_t at_ns[RACE_SLOTS];  /* when they are raced, or 0: at once */
    uint64_t begun_ns, usual_ns; /* to get under way */
    atomic_uint_fast64_t steps[2];
    uint64_t step; /* before this batch */
    uint64_t seeds[2];
    pthread_t thread;
    pthread_barrier_t begin, end;
    bool stop;
} races_t;

/* One pair of deeds and how often. */
typedef struct {
    int deeds[2];
    size_t rounds;
} race_pair_t;

/* Does them all, in slices of which a soak (races_whole()) keeps its place. */
void races_run(const races_ops_t *ops, races_t *races, void *arg,
               const race_pair_t *pairs, size_t count);

/* Whether a deed is one of the two. */
bool races_have(const races_t *races, int deed);

/* Both deeds to every slot of the batch. */
void races_meet(races_t *races);

/* The timeout of what begins now in this slot, which is raced when it expires:
 * -1 where no deadline is one of the deeds, else some more than the rounds of a
 * batch have taken to get under way. */
int32_t races_timeout(races_t *races, unsigned slot);

/* Replies that side b did not wait for any more, so far. */
uint64_t races_late(races_t *races);

/* Whether it is the large count that is wanted, as in `make soak`. */
bool races_whole(void);

#endif
