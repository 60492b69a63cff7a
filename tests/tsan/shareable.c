/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that can be lent: threads allocate and free it, while others look for
 * it by address, lend it, and ask whether it is lent. */
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "memory/shareable.h"

enum { OWNERS = 2, OTHERS = 2, ROUNDS = 500, BYTES = 10000 };

static uint8_t *_Atomic shown[OWNERS];
static atomic_uint lent, over;

static void *own(void *arg)
{
    uint8_t *_Atomic *mine = arg;

    for (int i = 0; i < ROUNDS; i++) {
        void *memory;

        assert(tmsg_shareable_alloc(BYTES, NULL, &memory) == TMSG_OK);
        memset(memory, i, BYTES);
        atomic_store(mine, memory);
        assert(tmsg_shareable_free(memory) == TMSG_OK);
    }
    atomic_fetch_add(&over, 1);
    return NULL;
}

/* What is found may be freed meanwhile, and is then no more to be touched. */
static void *look(void *arg)
{
    (void)arg;
    for (unsigned i = 0; atomic_load(&over) < OWNERS; i++) {
        const uint8_t *memory = atomic_load(&shown[i % OWNERS]);
        tmsg_shareable_t *segment = tmsg_shareable_find(memory, BYTES);

        (void)tmsg_shareable_is_lent(memory);
        if (segment == NULL) {
            continue;
        }
        assert(tmsg_shareable_memory(segment) == memory);
        assert(tmsg_shareable_fd(segment) >= 0);
        tmsg_shareable_lend(segment);
        assert(tmsg_shareable_is_lent_now(segment));
        (void)tmsg_shareable_is_freed(segment);
        tmsg_shareable_return(segment);
        tmsg_shareable_drop(segment);
        atomic_fetch_add(&lent, 1);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[OWNERS + OTHERS];

    for (size_t i = 0; i < OWNERS + OTHERS; i++) {
        int rc = i < OWNERS ? pthread_create(&threads[i], NULL, own, &shown[i])
                            : pthread_create(&threads[i], NULL, look, NULL);

        assert(rc == 0);
    }
    for (size_t i = 0; i < OWNERS + OTHERS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (size_t i = 0; i < OWNERS; i++) {
        assert(tmsg_shareable_find(atomic_load(&shown[i]), 1) == NULL);
    }
    printf("%u were lent\n", atomic_load(&lent));
    return 0;
}
