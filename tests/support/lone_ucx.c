/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/lone_ucx.h"

#include <string.h>

#include "support/must.h"

static tmsg_ucx_status_t ignore(void *arg, const void *header,
                                size_t header_bytes, void *data,
                                size_t data_bytes,
                                const tmsg_ucx_am_info_t *info)
{
    (void)arg;
    (void)header;
    (void)header_bytes;
    (void)data;
    (void)data_bytes;
    (void)info;
    return TMSG_UCX_OK;
}

tmsg_ucx_t *lone_ucx_open(tmsg_loop_t *loop, const char *config,
                          const char *name)
{
    const tmsg_ucx_scope_t scope = {.device = "lo"};
    const tmsg_ucx_owner_t owner = {.loop = loop, .given = {.code = config}};
    uint8_t instance[TMSG_INSTANCE_BYTES] = {0};
    tmsg_hello_t hello;
    tmsg_ucx_t *ucx;

    must_true(strlen(name) <= sizeof(instance));
    memcpy(instance, name, strlen(name));
    tmsg_hello_fill_local(instance, &hello);
    must(tmsg_ucx_open(&owner, &scope, true, &hello, ignore, &ucx));
    must_true(ucx->own != NULL);
    return ucx;
}
