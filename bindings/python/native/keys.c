/* SPDX-License-Identifier: BSD-3-Clause */
#include "hub.h"

tmsg_status_t tmsgpy_give_keys(void *arg, tmsg_keyring_t *keyring)
{
    const tmsgpy_keys_t *keys = arg;
    tmsg_status_t status = TMSG_OK;

    for (size_t i = 0; i < keys->count && status == TMSG_OK; i++) {
        status = tmsg_keyring_add(keyring, keys->principals[i],
                                  keys->keys + i * TMSG_KEY_BYTES);
    }
    return status;
}
