/* SPDX-License-Identifier: BSD-3-Clause */
/* waits.h - who waits for what. A look costs as much as has happened, however
 * many wait: most things tell of themselves (tmsggo_stir()), and the others are
 * asked when something has come. */
#ifndef TENSORMSG_GO_WAITS_H
#define TENSORMSG_GO_WAITS_H

#include <stddef.h>
#include <stdint.h>

/* All that wait for one thing. */
typedef struct tmsggo_group tmsggo_group_t;

/* A place of those that wait, by the low bits of its identity. */
typedef struct tmsggo_wait {
    uint64_t id; /* 0: nobody waits here */
    tmsggo_group_t *group;
    uint32_t next, prev; /* of the group, as place + 1; 0: none */
} tmsggo_wait_t;

enum { TMSGGO_PLACE_BITS = 24 };

/* Which groups are asked. */
typedef enum tmsggo_list {
    TMSGGO_NEVER,   /* their things tell */
    TMSGGO_EVENTS,  /* after any event */
    TMSGGO_ARRIVALS /* when something to be received has come */
} tmsggo_list_t;

struct tmsggo_group {
    int kind;
    void *thing;
    tmsggo_list_t list;
    size_t index; /* in that list */
    uint32_t first, last, count;
    tmsggo_group_t *next; /* of the same hash */
};

typedef struct tmsggo_groups {
    tmsggo_group_t **all;
    size_t count, room;
} tmsggo_groups_t;

typedef struct tmsggo_waits {
    tmsggo_wait_t *places;
    size_t place_room;
    tmsggo_group_t **buckets; /* a power of two */
    size_t bucket_count;
    size_t group_count;
    tmsggo_groups_t lists[TMSGGO_ARRIVALS + 1];
    uint64_t *over; /* identities, oldest first, from `taken` on */
    size_t over_count, over_room, taken;
} tmsggo_waits_t;

/* One lock is held around each of these. Without memory they end the process,
 * as Go does. */
void tmsggo_waits_add(tmsggo_waits_t *waits, int kind, void *thing,
                      tmsggo_list_t list, uint64_t id);
/* 0: it does not wait (any more). */
int tmsggo_waits_remove(tmsggo_waits_t *waits, uint64_t id);
/* NULL: nobody waits for it. */
tmsggo_group_t *tmsggo_waits_find(const tmsggo_waits_t *waits, int kind,
                                  const void *thing);
/* A thing for which nobody waits yet, to be found until it is unmarked. */
void tmsggo_waits_mark(tmsggo_waits_t *waits, int kind, void *thing);
void tmsggo_waits_unmark(tmsggo_waits_t *waits, int kind, const void *thing);
/* The waits of the `most` who have waited longest are over. With the last one
 * the group is gone. */
void tmsggo_waits_end(tmsggo_waits_t *waits, tmsggo_group_t *group,
                      size_t most);
/* Takes up to `most` identities; returns how many. */
size_t tmsggo_waits_take(tmsggo_waits_t *waits, uint64_t *ids, size_t most);
void tmsggo_waits_free(tmsggo_waits_t *waits);

#endif
