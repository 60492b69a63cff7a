/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/worker/nap.h"

#include "am/shm/box.h"

bool tmsg_worker_nap_begin(tmsg_worker_t *worker)
{
    bool may = worker->boxes.count == worker->endpoint_count;

    for (tmsg_node_t *node = worker->boxes.head; node != NULL && may;
         node = node->next) {
        may = tmsg_box_may_nap(tmsg_boxes_at(node)->in);
        tmsg_box_nap_begin(tmsg_boxes_at(node)->in);
    }
    if (!may) {
        tmsg_worker_nap_end(worker);
    }
    return may;
}

void tmsg_worker_nap_words(const tmsg_worker_t *worker, tmsg_nap_t *nap)
{
    nap->count = 0;
    for (tmsg_node_t *node = worker->boxes.head; node != NULL;
         node = node->next) {
        tmsg_box_nap_word(tmsg_boxes_at(node)->in, nap);
    }
}

void tmsg_worker_nap_end(tmsg_worker_t *worker)
{
    for (tmsg_node_t *node = worker->boxes.head; node != NULL;
         node = node->next) {
        tmsg_box_nap_end(tmsg_boxes_at(node)->in);
    }
}

void tmsg_worker_rouse(tmsg_worker_t *worker)
{
    if (worker->lead.naps && worker->boxes.count > 0) {
        worker->lead.naps = false;
        tmsg_box_rouse(tmsg_boxes_at(worker->boxes.head)->in);
    }
}
