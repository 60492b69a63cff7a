/* SPDX-License-Identifier: BSD-3-Clause */
/* keys.c - keyrings and certificates, each call with its words. */
#include "hub.h"

#include <string.h>

tmsggo_result_t tmsggo_key_generate(uint8_t *key)
{
    return tmsggo_result(tmsg_key_generate(key));
}

tmsggo_result_t tmsggo_key_save(const char *path, const char *principal,
                                const uint8_t *key)
{
    return tmsggo_result(tmsg_key_save(path, principal, key));
}

void tmsggo_wipe(uint8_t *keys, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += TMSG_KEY_BYTES) {
        tmsg_key_wipe(keys + i);
    }
}

tmsggo_result_t tmsggo_keyring(tmsg_keyring_t **ring_p)
{
    return tmsggo_result(tmsg_keyring_create(ring_p));
}

tmsggo_result_t tmsggo_keyring_add(tmsg_keyring_t *ring, const char *principal,
                                   const uint8_t *key)
{
    return tmsggo_result(tmsg_keyring_add(ring, principal, key));
}

tmsggo_result_t tmsggo_keyring_remove(tmsg_keyring_t *ring,
                                      const char *principal)
{
    return tmsggo_result(tmsg_keyring_remove(ring, principal));
}

tmsggo_result_t tmsggo_keyring_load(tmsg_keyring_t *ring, const char *path)
{
    return tmsggo_result(tmsg_keyring_load(ring, path));
}

typedef struct keys {
    const char *names;
    const uint8_t *keys;
    size_t count;
} keys_t;

static tmsg_status_t fill(void *arg, tmsg_keyring_t *ring)
{
    const keys_t *from = arg;
    const char *name = from->names;
    tmsg_status_t status = TMSG_OK;
    for (size_t i = 0; i < from->count && status == TMSG_OK; i++) {
        status = tmsg_keyring_add(ring, name, from->keys + i * TMSG_KEY_BYTES);
        name += strlen(name) + 1;
    }
    return status;
}

tmsggo_result_t tmsggo_keyring_replace(tmsg_keyring_t *ring, const char *names,
                                       const uint8_t *keys, size_t count)
{
    keys_t from = {names, keys, count};
    return tmsggo_result(tmsg_keyring_fill(ring, fill, &from));
}

tmsggo_result_t tmsggo_tls(tmsg_tls_params_t params, tmsg_tls_t **tls_p)
{
    return tmsggo_result(tmsg_tls_create(&params, tls_p));
}

tmsggo_result_t tmsggo_tls_reload(tmsg_tls_t *tls)
{
    return tmsggo_result(tmsg_tls_reload(tls));
}
