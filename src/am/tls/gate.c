/* SPDX-License-Identifier: BSD-3-Clause */
/* exit() has OpenSSL free what its functions use (OPENSSL_cleanup()), and the
 * threads that drive workers go on meanwhile. So before that the gate closes.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "am/tls/secure.h"

#define PAUSE_US 1000
#define PAUSES_MOST 1000

static atomic_bool closed;
static atomic_uint inside;

static void close_gate(void)
{
    atomic_store(&closed, true);
    for (int i = 0; i < PAUSES_MOST && atomic_load(&inside) > 0; i++) {
        usleep(PAUSE_US);
    }
}

/* Other threads of the parent may have been inside. */
static void in_child(void) { atomic_store(&inside, 0); }

static void set_up(void)
{
    pthread_atfork(NULL, NULL, in_child);
    atexit(close_gate);
}

void tmsg_gate_begin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, set_up);
}

bool tmsg_gate_enter(void)
{
    atomic_fetch_add(&inside, 1);
    if (!atomic_load(&closed)) {
        return true;
    }
    tmsg_gate_leave();
    return false;
}

void tmsg_gate_leave(void) { atomic_fetch_sub(&inside, 1); }
