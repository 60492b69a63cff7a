/* SPDX-License-Identifier: BSD-3-Clause */
/* am/boot/key.h - keyrings as the room sees them. */
#ifndef TMSG_AM_BOOT_KEY_H
#define TMSG_AM_BOOT_KEY_H

#include <tensormsg/key.h>

#define TMSG_PRINCIPAL_BYTES (TMSG_PRINCIPAL_MOST + 1)

typedef struct {
    char principal[TMSG_PRINCIPAL_BYTES];
    uint8_t bytes[TMSG_KEY_BYTES];
} tmsg_key_t;

/* What a keyring holds at one time; to be wiped. */
typedef struct {
    unsigned count;
    tmsg_key_t keys[TMSG_KEYS_MOST];
} tmsg_keys_t;

/* Errors: INVALID_PARAM (a name that is none). */
tmsg_status_t tmsg_principal_check(const char *principal);

void tmsg_keyring_hold(tmsg_keyring_t *keyring);
void tmsg_keyring_copy(tmsg_keyring_t *keyring, tmsg_keys_t *keys);
void tmsg_keys_wipe(tmsg_keys_t *keys);

#endif
