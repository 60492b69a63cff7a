/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory/domain.h"

#include <stddef.h>

static const tmsg_domain_t *const domains[] = {
    &tmsg_domain_host,
};

static const tmsg_domain_t *added;

void tmsg_domain_add(const tmsg_domain_t *domain) { added = domain; }

const tmsg_domain_t *tmsg_domain_of(tmsg_device_t device)
{
    for (size_t i = 0; i < sizeof(domains) / sizeof(domains[0]); i++) {
        if (domains[i]->holds(device)) {
            return domains[i];
        }
    }
    return added != NULL && added->holds(device) ? added : NULL;
}
