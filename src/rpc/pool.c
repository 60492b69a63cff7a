/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/pool.h"

#include <errno.h>
#include <stdlib.h>

#include <tensormsg/span.h>

#include "core/thread.h"

static void *serve(void *arg)
{
    tmsg_server_t *server = arg;
    tmsg_hub_t *hub = server->hub;

    tmsg_hub_lock(hub);
    while (!server->stopping) {
        tmsg_task_t *task = tmsg_task_take(server);

        if (task == NULL) {
            pthread_cond_wait(&server->news, &hub->lock);
            continue;
        }
        tmsg_hub_unlock(hub);
        tmsg_task_run(task);
        (void)tmsg_trace_set_current(
            NULL); /* the handler may leave a context */
        tmsg_hub_lock(hub);
    }
    tmsg_hub_unlock(hub);
    return NULL;
}

void tmsg_pool_stop(tmsg_server_t *server)
{
    tmsg_hub_lock(server->hub);
    server->stopping = true;
    pthread_cond_broadcast(&server->news);
    tmsg_hub_unlock(server->hub);
    for (uint32_t i = 0; i < server->thread_count; i++) {
        pthread_join(server->threads[i], NULL);
    }
    server->thread_count = 0;
}

tmsg_status_t tmsg_pool_start(tmsg_server_t *server)
{
    uint32_t count = server->thread_count;
    int error = 0;

    if (count == 0) {
        return TMSG_OK;
    }
    server->threads = calloc(count, sizeof(*server->threads));
    if (server->threads == NULL) {
        server->thread_count = 0;
        return tmsg_error_memory("a server's threads");
    }
    server->thread_count = 0;
    while (server->thread_count < count && error == 0) {
        error = tmsg_thread_start(&server->threads[server->thread_count], serve,
                                  server);
        server->thread_count += error == 0;
    }
    if (error != 0) {
        tmsg_pool_stop(server);
        errno = error;
        return tmsg_error_errno(TMSG_ERR_IO, "a server's thread");
    }
    return TMSG_OK;
}
