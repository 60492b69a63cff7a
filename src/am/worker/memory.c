/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/worker/memory.h"

#include <stdio.h>

void tmsg_worker_starving_words(const tmsg_worker_t *worker, char *words,
                                size_t room)
{
    snprintf(words, room,
             "a message waits for memory: those that came and were not "
             "released hold %llu bytes, and held_bytes is %llu",
             (unsigned long long)tmsg_budget_held(worker->budget),
             (unsigned long long)tmsg_budget_limit(worker->budget));
}

bool tmsg_worker_is_starving(const tmsg_worker_t *worker, char *why,
                             size_t room)
{
    bool starving =
        tmsg_fetch_asks(worker) && tmsg_budget_is_missed(worker->budget);
    char words[TMSG_STARVING_WORDS];

    if (room > 0) {
        why[0] = '\0';
    }
    if (starving && room > 0) {
        tmsg_worker_starving_words(worker, words, sizeof(words));
        snprintf(why, room, "; %s", words);
    }
    return starving;
}

int tmsg_worker_starves(tmsg_worker_t *worker)
{
    bool starving = tmsg_budget_is_missed(worker->budget);

    if (starving) {
        tmsg_worker_lock(worker);
        starving = tmsg_worker_is_starving(worker, NULL, 0);
        tmsg_worker_unlock(worker);
    }
    return starving;
}
