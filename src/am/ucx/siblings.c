/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/ucx/siblings.h"

#include <pthread.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "am/net/loop.h"
#include "core/bytes.h"
#include "core/error.h"

const char tmsg_siblings_gone[] =
    "the peer's worker, which was in this process, was destroyed";

/* Two UCX workers that are siblings. If one of them has left, it is held for
 * the other. */
typedef struct {
    tmsg_node_t node;
    tmsg_ucx_t *of[2];
    int gone;     /* index of the one that has left; -1: neither has */
    bool is_over; /* the other one does not need it any more */
} pair_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tmsg_ucx_t *known; /* list of those that have not left */
static tmsg_list_t pairs;
static uint32_t number; /* number of the latest one; 0: there was none yet */
static uint8_t secret[crypto_shorthash_KEYBYTES];

/* Returns the ucx_id of a number: the number, and its hash with a secret. The
 * numbers count up from a random one. Only this copy of the library in this
 * process has the secret. So it recognizes its own ids, even of UCX workers
 * that have left, and not the ids of another copy. */
static uint64_t id_of_number(uint32_t of)
{
    uint8_t bytes[4], mark[crypto_shorthash_BYTES];

    tmsg_put_le(bytes, of, sizeof(bytes));
    crypto_shorthash(mark, bytes, sizeof(bytes), secret);
    return (uint64_t)of << 32 | tmsg_get_le(mark, 4);
}

static bool is_ours(uint64_t id)
{
    return id == id_of_number((uint32_t)(id >> 32));
}

/* Begins with empty tables in the child of a fork(). The thread that may have
 * held the lock is not there, nor are the UCX workers in the tables.
 * `of_parent` keeps the parent's pairs reachable for leak checkers. */
static void begin_anew(void)
{
    static tmsg_list_t of_parent;

    of_parent = pairs;
    (void)of_parent;
    pthread_mutex_init(&lock, NULL);
    known = NULL;
    pairs = (tmsg_list_t){0};
    number = 0;
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, begin_anew); }

void tmsg_siblings_enter(tmsg_ucx_t *ucx)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
    if (number == 0) {
        randombytes_buf(secret, sizeof(secret));
        number = randombytes_random();
    }
    number += number == UINT32_MAX ? 2 : 1;
    ucx->hello.ucx_id = id_of_number(number);
    if (ucx->pipes == NULL) { /* a pipe opens nobody's memory */
        ucx->next_known = known;
        known = ucx;
    }
    pthread_mutex_unlock(&lock);
}

static tmsg_ucx_t *find_known(uint64_t id)
{
    tmsg_ucx_t *ucx = known;

    while (ucx != NULL && ucx->hello.ucx_id != id) {
        ucx = ucx->next_known;
    }
    return ucx;
}

static bool outlives(const tmsg_ucx_t *ucx, const pair_t *pair)
{
    return pair->gone >= 0 && pair->of[1 - pair->gone] == ucx;
}

static bool have_met(const tmsg_ucx_t *a, const tmsg_ucx_t *b)
{
    for (tmsg_node_t *node = pairs.head; node != NULL; node = node->next) {
        const pair_t *pair = TMSG_CONTAINER_OF(node, pair_t, node);

        if ((pair->of[0] == a && pair->of[1] == b) ||
            (pair->of[0] == b && pair->of[1] == a)) {
            return true;
        }
    }
    return false;
}

static tmsg_status_t introduce_siblings(tmsg_ucx_t *a, tmsg_ucx_t *b)
{
    pair_t *pair;

    if (have_met(a, b)) {
        return TMSG_OK;
    }
    pair = malloc(sizeof(*pair));
    if (pair == NULL) {
        return tmsg_error_memory("two workers of one process");
    }
    *pair = (pair_t){.of = {a, b}, .gone = -1};
    tmsg_list_push(&pairs, &pair->node);
    return TMSG_OK;
}

tmsg_status_t tmsg_siblings_meet(tmsg_ucx_t *ucx, const tmsg_hello_t *peer)
{
    tmsg_status_t status = TMSG_OK;
    tmsg_ucx_t *other;

    if (peer->pid != (uint32_t)getpid()) {
        return TMSG_OK;
    }
    pthread_mutex_lock(&lock);
    other = find_known(peer->ucx_id);
    if (other == ucx) {
        status = tmsg_error_set(TMSG_ERR_MALFORMED,
                                "the peer says that it is this side");
    } else if (other != NULL) {
        status = introduce_siblings(ucx, other);
    } else if (is_ours(peer->ucx_id)) {
        status = tmsg_error_set(TMSG_ERR_PEER_LOST, "%s", tmsg_siblings_gone);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

bool tmsg_siblings_have(const tmsg_hello_t *peer, const void *address,
                        size_t bytes)
{
    const tmsg_ucx_t *other;
    bool has;

    pthread_mutex_lock(&lock);
    other = peer->pid == (uint32_t)getpid() ? find_known(peer->ucx_id) : NULL;
    has = other != NULL && other->address_bytes == bytes &&
          memcmp(other->address, address, bytes) == 0;
    pthread_mutex_unlock(&lock);
    return has;
}

static void forget_known(const tmsg_ucx_t *ucx)
{
    tmsg_ucx_t **place = &known;

    while (*place != NULL && *place != ucx) {
        place = &(*place)->next_known;
    }
    if (*place != NULL) { /* false: the parent's, before fork() */
        *place = ucx->next_known;
    }
}

/* Takes out the pairs whose other side has left and that are over for `ucx`. If
 * `ucx` leaves as well, all such pairs are over. `lock` held. */
static void take_pairs_over(const tmsg_ucx_t *ucx, bool leaves,
                            tmsg_list_t *over)
{
    tmsg_node_t *next;

    for (tmsg_node_t *node = pairs.head; node != NULL; node = next) {
        pair_t *pair = TMSG_CONTAINER_OF(node, pair_t, node);

        next = node->next;
        if (outlives(ucx, pair) && (leaves || pair->is_over)) {
            tmsg_list_remove(&pairs, node);
            tmsg_list_push(over, node);
        }
    }
}

/* Lets go of the UCX workers that have left, which may close them. `lock` not
 * held. */
static void let_go_pairs(tmsg_list_t *over)
{
    tmsg_node_t *node;

    while ((node = tmsg_list_pop(over)) != NULL) {
        pair_t *pair = TMSG_CONTAINER_OF(node, pair_t, node);

        tmsg_ucx_let_go(pair->of[pair->gone]);
        free(pair);
    }
}

/* Tells a UCX worker that one of its siblings has left. Its thread may sleep,
 * so it is woken. */
static void tell_sibling_gone(tmsg_ucx_t *ucx)
{
    atomic_store(&ucx->sibling_gone, true);
    tmsg_loop_signal(ucx->loop->event_fd);
}

void tmsg_siblings_leave(tmsg_ucx_t *ucx)
{
    tmsg_list_t over = {0};

    pthread_mutex_lock(&lock);
    forget_known(ucx);
    take_pairs_over(ucx, true, &over);
    for (tmsg_node_t *node = pairs.head; node != NULL; node = node->next) {
        pair_t *pair = TMSG_CONTAINER_OF(node, pair_t, node);

        for (int i = 0; i < 2 && pair->gone < 0; i++) {
            if (pair->of[i] == ucx) {
                pair->gone = i;
                tmsg_refs_take(&ucx->holders);
                tell_sibling_gone(pair->of[1 - i]);
            }
        }
    }
    pthread_mutex_unlock(&lock);
    let_go_pairs(&over);
}

bool tmsg_siblings_look(tmsg_ucx_t *ucx,
                        bool (*deals_with)(const tmsg_ucx_t *ucx,
                                           uint64_t peer))
{
    bool any = false, left = false;

    pthread_mutex_lock(&lock);
    atomic_store(&ucx->sibling_gone, false);
    for (tmsg_node_t *node = pairs.head; node != NULL; node = node->next) {
        pair_t *pair = TMSG_CONTAINER_OF(node, pair_t, node);

        if (outlives(ucx, pair)) {
            pair->is_over =
                !deals_with(ucx, pair->of[pair->gone]->hello.ucx_id);
            any |= pair->is_over;
            left |= !pair->is_over;
        }
    }
    ucx->waits = left;
    pthread_mutex_unlock(&lock);
    return any;
}

bool tmsg_sibling_has_gone(const tmsg_ucx_t *ucx, uint64_t peer)
{
    bool gone = false;

    pthread_mutex_lock(&lock);
    for (tmsg_node_t *node = pairs.head; node != NULL && !gone;
         node = node->next) {
        const pair_t *pair = TMSG_CONTAINER_OF(node, pair_t, node);

        gone =
            outlives(ucx, pair) && pair->of[pair->gone]->hello.ucx_id == peer;
    }
    pthread_mutex_unlock(&lock);
    return gone;
}

void tmsg_siblings_let_go(tmsg_ucx_t *ucx)
{
    tmsg_list_t over = {0};

    pthread_mutex_lock(&lock);
    take_pairs_over(ucx, false, &over);
    pthread_mutex_unlock(&lock);
    let_go_pairs(&over);
}
