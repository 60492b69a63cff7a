/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/worker/nap.h"

#include "am/shm/fastbox.h"

bool tmsg_worker_nap_begin(tmsg_worker_t *worker)
{
    bool may = worker->fastboxes.count == worker->endpoint_count;

    for (tmsg_node_t *node = worker->fastboxes.head; node != NULL && may;
         node = node->next) {
        may = tmsg_fastbox_may_nap(tmsg_fastboxes_at(node)->in);
        tmsg_fastbox_nap_begin(tmsg_fastboxes_at(node)->in);
    }
    if (!may) {
        tmsg_worker_nap_end(worker);
    }
    return may;
}

void tmsg_worker_nap_words(const tmsg_worker_t *worker, tmsg_nap_t *nap)
{
    nap->count = 0;
    for (tmsg_node_t *node = worker->fastboxes.head; node != NULL;
         node = node->next) {
        tmsg_fastbox_nap_word(tmsg_fastboxes_at(node)->in, nap);
    }
}

void tmsg_worker_nap_end(tmsg_worker_t *worker)
{
    for (tmsg_node_t *node = worker->fastboxes.head; node != NULL;
         node = node->next) {
        tmsg_fastbox_nap_end(tmsg_fastboxes_at(node)->in);
    }
}

void tmsg_worker_rouse(tmsg_worker_t *worker)
{
    if (worker->lead.naps && worker->fastboxes.count > 0) {
        worker->lead.naps = false;
        tmsg_fastbox_rouse(tmsg_fastboxes_at(worker->fastboxes.head)->in);
    }
}
