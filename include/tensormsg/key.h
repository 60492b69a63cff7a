/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/key.h - the keys by which peers prove who they are.
 *
 * A keyring holds keys, each with the name of a principal. A side with a
 * keyring takes no peer that has none of its keys.
 *
 *     tmsg_keyring_create(&keyring);
 *     tmsg_keyring_load(keyring, "farm.key");
 *     context_params.keyring = keyring; // with TMSG_CONTEXT_PARAM_KEYRING
 *     tmsg_context_create(&context_params, &context);
 *     tmsg_keyring_destroy(keyring); // the context keeps it
 */
#ifndef TENSORMSG_KEY_H
#define TENSORMSG_KEY_H

#include <stdint.h>

#include <tensormsg/status.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TMSG_KEY_BYTES = 32,      /* of a key */
    TMSG_KEYS_MOST = 64,      /* in a keyring */
    TMSG_PRINCIPAL_MOST = 63, /* bytes of a principal's name */
    TMSG_PROOFS_MOST = 16     /* keys that a dialling side proves at once */
};

/* Keys, each of a named *principal*. A side with a keyring takes no peer that
 * does not prove that it has one of these keys, and proves that it has the same
 * one; no key ever travels. What both know of each other then is the name that
 * the key has in their own keyrings: tmsg_endpoint_principal(). Several keys
 * may be of one principal, as the old and the new one are while they change.
 *
 * A side that dials proves the first 16 of its keys, all at once, and is
 * admitted by the first key in the other side's ring that is among them; nobody
 * between the two can leave some of these proofs out, and so choose another.
 * Where a process is several principals, a ring of each one's says which it
 * dials as. At tls:// it proves the first key alone, by TLS
 * (docs/reference/tls.md).
 *
 * A keyring is given to a context, for all that is made in it, or to a listener
 * or an endpoint alone (TMSG_CONTEXT_PARAM_KEYRING, TMSG_LISTENER_PARAM_KEYRING
 * and TMSG_ENDPOINT_PARAM_KEYRING), to any number of them. They hold it: it may
 * be destroyed at any time. Changes hold for all connections that begin after
 * them; those that stand stay. An empty keyring admits nobody. The functions
 * may be called from any thread. What is protected, and what is not, says
 * docs/understand/security.md. */
typedef struct tmsg_keyring tmsg_keyring_t;

/* Writes a new random key. Errors: IO. */
TMSG_API tmsg_status_t tmsg_key_generate(uint8_t key[TMSG_KEY_BYTES]);

/* Writes a new key file for a principal, for its owner alone (mode 0600).
 * Errors: ALREADY_EXISTS (there is a file: it stays as it was), INVALID_PARAM
 * (the name), IO. */
TMSG_API tmsg_status_t tmsg_key_save(const char *path, const char *principal,
                                     const uint8_t key[TMSG_KEY_BYTES]);

/* Overwrites a key, so that it does not stay in memory, whatever the compiler
 * thinks of it. */
TMSG_API void tmsg_key_wipe(uint8_t key[TMSG_KEY_BYTES]);

/* Creates a keyring without keys. The caller frees *keyring_p with
 * tmsg_keyring_destroy(). Errors: NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_keyring_create(tmsg_keyring_t **keyring_p);

/* Adds a key, which is copied. `principal` is 1 to 63 bytes of printable ASCII
 * without spaces. Errors: INVALID_PARAM (the name; a key of zeros),
 * ALREADY_EXISTS (that key is there, as whose is said), LIMIT_EXCEEDED (64 keys
 * are the most). */
TMSG_API tmsg_status_t tmsg_keyring_add(tmsg_keyring_t *keyring,
                                        const char *principal,
                                        const uint8_t key[TMSG_KEY_BYTES]);

/* Takes all keys of a principal away. Errors: NOT_FOUND. */
TMSG_API tmsg_status_t tmsg_keyring_remove(tmsg_keyring_t *keyring,
                                           const char *principal);

/* Reads a file of keys, which take the place of all that were there, at once.
 * It is text: a line for each key, the principal's name (without one:
 * "default"), a space and the key in 64 hexadecimal digits; empty lines and
 * those that begin with '#' are passed over. tmsg_key_save() and `tensormsg key
 * --out` write such files. On an error the keyring is as before. Errors:
 * NOT_FOUND, INSECURE (others may read the file, or its group write it, or it
 * belongs to somebody other than this user and root), MALFORMED (the line is
 * named, and nothing of it shown), ALREADY_EXISTS (a key is there twice),
 * LIMIT_EXCEEDED (64 KiB or 64 keys are the most), IO (also for what is no
 * regular file, such as a FIFO), NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_keyring_load(tmsg_keyring_t *keyring,
                                         const char *path);

/* Fetches keys from where the application has them: called once with an empty
 * keyring to be filled by tmsg_keyring_add(). Anything but OK fails
 * tmsg_keyring_fill(). */
typedef tmsg_status_t (*tmsg_keys_fn)(void *arg, tmsg_keyring_t *keyring);

/* Has `keys` called, at once and on this thread, and puts the keys that it
 * added in the place of all that were there. Where it fails, which this
 * returns, or there is no memory, the keyring is as before. Errors: NO_MEMORY,
 * and those of `keys`. */
TMSG_API tmsg_status_t tmsg_keyring_fill(tmsg_keyring_t *keyring,
                                         tmsg_keys_fn keys, void *arg);

/* Gives the caller's hold back. The last one wipes the keys from memory. NULL
 * is allowed. */
TMSG_API void tmsg_keyring_destroy(tmsg_keyring_t *keyring);

#ifdef __cplusplus
}
#endif

#endif
