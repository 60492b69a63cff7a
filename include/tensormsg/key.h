/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/key.h - the keys by which peers prove who they are.
 *
 * A keyring holds keys, each with the name of a principal. A side with a
 * keyring takes only peers that have one of its keys.
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

/* A keyring holds keys, each of a named *principal*. A side with a keyring
 * takes only peers that prove that they have one of these keys, and proves that
 * it has the same one. No key ever travels. Each side then knows the other by
 * the name that this key has in its own keyring: tmsg_endpoint_principal().
 * Several keys may belong to one principal, such as the old and the new one
 * while keys change.
 *
 * A side that dials proves its first 16 keys, all at once. The other side
 * admits it by the first key of its own keyring that is among them. Nobody
 * between the two can leave out some of these proofs and so choose another key.
 * If a process is several principals, it has a keyring for each one that it
 * dials as. At tls:// it proves only the first key, by TLS
 * (docs/reference/tls.md).
 *
 * A keyring is given to a context, for everything that is made in it, or to any
 * number of listeners and endpoints (TMSG_CONTEXT_PARAM_KEYRING,
 * TMSG_LISTENER_PARAM_KEYRING, TMSG_ENDPOINT_PARAM_KEYRING). They hold it: it
 * may be destroyed at any time. Changes hold for connections that begin after
 * them. An empty keyring admits nobody. Any thread may call these functions.
 * docs/understand/security.md says what is protected and what is not. */
typedef struct tmsg_keyring tmsg_keyring_t;

/* Makes a new random key.
 * Errors:
 *   IO - the system gives no random bytes */
TMSG_API tmsg_status_t tmsg_key_generate(uint8_t key[TMSG_KEY_BYTES]);

/* Writes a new key file for a principal, for its owner alone (mode 0600).
 * Errors:
 *   ALREADY_EXISTS - there is a file: it stays as it was
 *   INVALID_PARAM - the principal's name
 *   IO */
TMSG_API tmsg_status_t tmsg_key_save(const char *path, const char *principal,
                                     const uint8_t key[TMSG_KEY_BYTES]);

/* Overwrites a key, so that it does not stay in memory. The compiler cannot
 * leave this out. */
TMSG_API void tmsg_key_wipe(uint8_t key[TMSG_KEY_BYTES]);

/* Creates a keyring without keys. The caller frees *keyring_p with
 * tmsg_keyring_destroy(). Errors: NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_keyring_create(tmsg_keyring_t **keyring_p);

/* Adds a key, which is copied. `principal` is 1 to 63 bytes of printable ASCII
 * without spaces.
 * Errors:
 *   INVALID_PARAM - the name, or a key of zeros
 *   ALREADY_EXISTS - the keyring has that key; the error says whose it is
 *   LIMIT_EXCEEDED - the keyring has 64 keys */
TMSG_API tmsg_status_t tmsg_keyring_add(tmsg_keyring_t *keyring,
                                        const char *principal,
                                        const uint8_t key[TMSG_KEY_BYTES]);

/* Removes all keys of a principal.
 * Errors:
 *   INVALID_PARAM - the principal's name
 *   NOT_FOUND - it has none */
TMSG_API tmsg_status_t tmsg_keyring_remove(tmsg_keyring_t *keyring,
                                           const char *principal);

/* Reads a file of keys, which replace all keys of the keyring at once. On an
 * error the keyring is as before. The file is text, with a line for each key:
 * the principal's name (without one: "default"), a space, and the key in 64
 * hexadecimal digits. Empty lines and lines that begin with '#' are ignored.
 * tmsg_key_save() and `tensormsg key --out` write such files.
 * Errors:
 *   NOT_FOUND - no such file
 *   INSECURE - others may read the file, or its group may write it, or it
 *     belongs to somebody other than this user and root
 *   MALFORMED - the error names the line, and does not show its text
 *   ALREADY_EXISTS - a key is there twice
 *   LIMIT_EXCEEDED - the file has more than 64 KiB or 64 keys
 *   IO - also for what is no regular file, such as a FIFO
 *   NO_MEMORY */
TMSG_API tmsg_status_t tmsg_keyring_load(tmsg_keyring_t *keyring,
                                         const char *path);

/* Gets keys from the application: called once with an empty keyring, which it
 * fills by tmsg_keyring_add(). Any status other than OK fails
 * tmsg_keyring_fill(). */
typedef tmsg_status_t (*tmsg_keys_fn)(void *arg, tmsg_keyring_t *keyring);

/* Calls `keys`, at once and on this thread, and replaces all keys of the
 * keyring by those that it added. On an error the keyring is as before.
 * Errors: what `keys` returns, and:
 *   NO_MEMORY */
TMSG_API tmsg_status_t tmsg_keyring_fill(tmsg_keyring_t *keyring,
                                         tmsg_keys_fn keys, void *arg);

/* Gives the caller's hold back. The last hold wipes the keys from memory. NULL
 * is allowed. */
TMSG_API void tmsg_keyring_destroy(tmsg_keyring_t *keyring);

#ifdef __cplusplus
}
#endif

#endif
