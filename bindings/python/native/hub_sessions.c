/* SPDX-License-Identifier: BSD-3-Clause */
/* What became of the session of an endpoint: noted for Python. */
#include "hub_impl.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tensormsg/endpoint.h>

struct session {
    struct session *next;
    tmsgpy_session_t what;
};

/* Words are UTF-8: no character of them is cut. */
static void copy_words(char *to, size_t room, const char *words)
{
    size_t bytes = words == NULL ? 0 : strlen(words);

    if (bytes >= room) {
        bytes = room - 1;
        while (bytes > 0 && ((unsigned char)words[bytes] & 0xc0) == 0x80) {
            bytes--;
        }
    }
    if (bytes > 0) {
        memcpy(to, words, bytes);
    }
    to[bytes] = '\0';
}

/* One for which there is no memory is not told. */
static void on_session(void *arg, tmsg_endpoint_t *endpoint,
                       tmsg_session_event_t event, const char *words)
{
    struct session *session = malloc(sizeof(*session));
    tmsgpy_hub_t *hub = arg;

    (void)endpoint;
    if (session == NULL) {
        return;
    }
    session->next = NULL;
    session->what.event = (int)event;
    copy_words(session->what.words, sizeof(session->what.words), words);
    pthread_mutex_lock(&hub->lock);
    *hub->last_session = session;
    hub->last_session = &session->next;
    __atomic_fetch_add(&hub->events, 1, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&hub->left);
    tmsgpy_hub_stir(hub);
    pthread_mutex_unlock(&hub->lock);
}

void tmsgpy_hub_note_sessions(tmsgpy_hub_t *hub, tmsg_endpoint_t *endpoint)
{
    tmsg_endpoint_on_session(endpoint, on_session, hub);
}

int tmsgpy_hub_session(tmsgpy_hub_t *hub, int waits,
                       tmsgpy_session_t *session_p)
{
    struct session *session;

    pthread_mutex_lock(&hub->lock);
    while (waits && hub->sessions == NULL && !hub->closed) {
        pthread_cond_wait(&hub->left, &hub->lock);
    }
    session = hub->sessions;
    if (session != NULL) {
        hub->sessions = session->next;
        if (hub->sessions == NULL) {
            hub->last_session = &hub->sessions;
        }
    }
    pthread_mutex_unlock(&hub->lock);
    if (session == NULL) {
        return 0;
    }
    *session_p = session->what;
    free(session);
    return 1;
}
