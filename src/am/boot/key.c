/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/boot/key.h"

#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "core/error.h"
#include "core/refs.h"

struct tmsg_keyring {
    tmsg_refs_t refs;
    pthread_mutex_t lock; /* protects `keys` */
    tmsg_keys_t keys;
};

tmsg_status_t tmsg_key_generate(uint8_t key[TMSG_KEY_BYTES])
{
    return getrandom(key, TMSG_KEY_BYTES, 0) == TMSG_KEY_BYTES
               ? TMSG_OK
               : tmsg_error_errno(TMSG_ERR_IO, "getrandom");
}

void tmsg_key_wipe(uint8_t key[TMSG_KEY_BYTES])
{
    sodium_memzero(key, TMSG_KEY_BYTES);
}

void tmsg_keys_wipe(tmsg_keys_t *keys) { sodium_memzero(keys, sizeof(*keys)); }

tmsg_status_t tmsg_keyring_create(tmsg_keyring_t **keyring_p)
{
    tmsg_keyring_t *keyring = calloc(1, sizeof(*keyring));

    if (keyring == NULL) {
        return tmsg_error_memory("a keyring");
    }
    tmsg_refs_init(&keyring->refs, 1);
    pthread_mutex_init(&keyring->lock, NULL);
    *keyring_p = keyring;
    return TMSG_OK;
}

void tmsg_keyring_hold(tmsg_keyring_t *keyring)
{
    tmsg_refs_take(&keyring->refs);
}

void tmsg_keyring_destroy(tmsg_keyring_t *keyring)
{
    if (keyring != NULL && tmsg_refs_drop(&keyring->refs)) {
        pthread_mutex_destroy(&keyring->lock);
        tmsg_keys_wipe(&keyring->keys);
        free(keyring);
    }
}

void tmsg_keyring_copy(tmsg_keyring_t *keyring, tmsg_keys_t *keys)
{
    pthread_mutex_lock(&keyring->lock);
    *keys = keyring->keys;
    pthread_mutex_unlock(&keyring->lock);
}

tmsg_status_t tmsg_principal_check(const char *principal)
{
    size_t bytes = principal == NULL ? 0 : strlen(principal);

    for (size_t i = 0; i < bytes; i++) {
        if (principal[i] <= ' ' || principal[i] > '~') {
            return tmsg_error_set(
                TMSG_ERR_INVALID_PARAM,
                "principal '%s': a principal is printable ASCII without spaces",
                tmsg_error_name(principal, bytes).text);
        }
    }
    return bytes > 0 && bytes <= TMSG_PRINCIPAL_MOST
               ? TMSG_OK
               : tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                "principal of %zu bytes: 1 to %d are allowed",
                                bytes, TMSG_PRINCIPAL_MOST);
}

/* Adds a key. Lock held. */
static tmsg_status_t add_key(tmsg_keys_t *keys, const char *principal,
                             const uint8_t *key)
{
    for (unsigned i = 0; i < keys->count; i++) {
        if (sodium_memcmp(keys->keys[i].bytes, key, TMSG_KEY_BYTES) == 0) {
            return tmsg_error_set(
                TMSG_ERR_ALREADY_EXISTS,
                "the keyring has this key of '%s' already, as that of '%s'",
                principal, keys->keys[i].principal);
        }
    }
    if (keys->count == TMSG_KEYS_MOST) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "a keyring has %d keys at most", TMSG_KEYS_MOST);
    }
    strcpy(keys->keys[keys->count].principal, principal);
    memcpy(keys->keys[keys->count].bytes, key, TMSG_KEY_BYTES);
    keys->count++;
    return TMSG_OK;
}

tmsg_status_t tmsg_keyring_add(tmsg_keyring_t *keyring, const char *principal,
                               const uint8_t key[TMSG_KEY_BYTES])
{
    tmsg_status_t status = tmsg_principal_check(principal);

    if (status != TMSG_OK) {
        return status;
    }
    if (sodium_is_zero(key, TMSG_KEY_BYTES)) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "the key of '%s' is all zeros", principal);
    }
    pthread_mutex_lock(&keyring->lock);
    status = add_key(&keyring->keys, principal, key);
    pthread_mutex_unlock(&keyring->lock);
    return status;
}

/* Removes all keys of a principal, and returns how many there were. Lock
 * held. */
static unsigned remove_keys(tmsg_keys_t *keys, const char *principal)
{
    unsigned kept = 0, before = keys->count;

    for (unsigned i = 0; i < before; i++) {
        if (strcmp(keys->keys[i].principal, principal) != 0) {
            keys->keys[kept++] = keys->keys[i];
        }
    }
    sodium_memzero(&keys->keys[kept], (before - kept) * sizeof(tmsg_key_t));
    keys->count = kept;
    return before - kept;
}

tmsg_status_t tmsg_keyring_remove(tmsg_keyring_t *keyring,
                                  const char *principal)
{
    tmsg_status_t status = tmsg_principal_check(principal);
    unsigned gone;

    if (status != TMSG_OK) {
        return status;
    }
    pthread_mutex_lock(&keyring->lock);
    gone = remove_keys(&keyring->keys, principal);
    pthread_mutex_unlock(&keyring->lock);
    return gone > 0
               ? TMSG_OK
               : tmsg_error_set(TMSG_ERR_NOT_FOUND,
                                "the keyring has no key of '%s'", principal);
}

tmsg_status_t tmsg_keyring_fill(tmsg_keyring_t *keyring, tmsg_keys_fn keys,
                                void *arg)
{
    tmsg_keyring_t *fresh = NULL;
    tmsg_status_t status = tmsg_keyring_create(&fresh);

    if (status != TMSG_OK) {
        return status;
    }
    status = keys(arg, fresh);
    if (status == TMSG_OK) {
        pthread_mutex_lock(&keyring->lock);
        tmsg_keyring_copy(fresh, &keyring->keys);
        pthread_mutex_unlock(&keyring->lock);
    }
    tmsg_keyring_destroy(fresh);
    return status;
}
