/* SPDX-License-Identifier: BSD-3-Clause */
/* am/boot/key.h - keyrings as this library's rooms see them. */
#ifndef TMSG_AM_BOOT_KEY_H
#define TMSG_AM_BOOT_KEY_H

#include <tensormsg/key.h>

#define TMSG_PRINCIPAL_BYTES (TMSG_PRINCIPAL_MOST + 1)

typedef struct {
    char principal[TMSG_PRINCIPAL_BYTES];
    uint8_t bytes[TMSG_KEY_BYTES];
} tmsg_key_t;

/* The keys that a keyring holds at one time. The owner of a copy wipes it. */
typedef struct {
    unsigned count;
    tmsg_key_t keys[TMSG_KEYS_MOST];
} tmsg_keys_t;

/* Checks the name of a principal. Errors: INVALID_PARAM. */
tmsg_status_t tmsg_principal_check(const char *principal);

/* Checks who may read and write a key file that is open. What is no regular
 * file, such as a pipe of the shell, is not checked: nobody else can read it.
 * The owner of a file may always write it, whatever its mode. Errors: INSECURE,
 * IO. */
tmsg_status_t tmsg_key_file_check(const char *path, int fd);

void tmsg_keyring_hold(tmsg_keyring_t *keyring);
void tmsg_keyring_copy(tmsg_keyring_t *keyring, tmsg_keys_t *keys);
void tmsg_keys_wipe(tmsg_keys_t *keys);

#endif
