/* SPDX-License-Identifier: BSD-3-Clause */
/* Both sides prove that they have a key, the dialling side first:
 *
 *   dialling                      dialled
 *   HELLO           ------------>
 *                   <------------ HELLO, or REFUSE
 *   PROOF           ------------>                  one of each of its keys
 *                   <------------ PROOF of a key that both have, or REFUSE
 *
 * A peer without a key learns nothing by which it could guess one: the dialled
 * side proves nothing before the dialling side has. The dialled side's proof
 * covers all proofs that came. So nobody in the middle can leave out one of
 * several, and thereby choose the principal of the dialling side. */
#include "am/connect/admit.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "am/connect/handshake.h"
#include "am/connect/link.h"
#include "am/endpoint/conn.h"
#include "am/endpoint/scheme.h"
#include "am/net/sock.h"
#include "am/tls/tls.h"
#include "core/error.h"
#include "serialize/header.h"

/* The words for a peer that is refused. They tell nothing of what was wrong. */
static const char outward[] = "not admitted: a key is asked for here, and none "
                              "that is known was proved";
static const char outward_older[] =
    "not admitted: a key is asked for here, and a version of tensormsg without "
    "admission, as the peer's is, cannot prove one";
/* By TLS the peer has proved a name, which is not the one that is asked for. */
static const char outward_tls[] =
    "not admitted: the session is one with another principal";

void tmsg_admit_begin(tmsg_endpoint_t *endpoint, tmsg_keyring_t *keyring,
                      tmsg_tls_t *tls)
{
    if (keyring != NULL) {
        tmsg_keyring_hold(keyring);
    }
    if (tls != NULL) {
        tmsg_tls_hold(tls);
    }
    endpoint->admit.keyring = keyring;
    endpoint->admit.tls = tls;
}

void tmsg_admit_end(tmsg_endpoint_t *endpoint)
{
    tmsg_keyring_destroy(endpoint->admit.keyring);
    endpoint->admit.keyring = NULL;
    tmsg_tls_destroy(endpoint->admit.tls);
    endpoint->admit.tls = NULL;
}

tmsg_status_t tmsg_admit_choose(const char *what, tmsg_url_kind_t kind,
                                tmsg_tls_t *tls, tmsg_keyring_t **keyring_p,
                                tmsg_tls_t **tls_p)
{
    tmsg_status_t status = TMSG_OK;

    *tls_p = NULL;
    if (!tmsg_schemes[kind]->secure) {
        return tls == NULL ? TMSG_OK
                           : tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                                            "%s: tls is for tls://, and not "
                                            "for %s://",
                                            what, tmsg_url_scheme(kind));
    }
    if (tls != NULL) {
        tmsg_tls_hold(tls);
        *tls_p = tls;
    } else if (*keyring_p != NULL) {
        status = tmsg_tls_of_keyring(*keyring_p, tls_p);
    } else {
        return tmsg_error_set(
            TMSG_ERR_INVALID_PARAM,
            "%s: tls:// needs certificates (tls) or a keyring", what);
    }
    if (status == TMSG_OK) {
        tmsg_keyring_destroy(*keyring_p);
        *keyring_p = NULL;
    }
    return status;
}

void tmsg_admit_forget(tmsg_endpoint_t *endpoint)
{
    endpoint->admit.proved = false;
    endpoint->admit.admitted = false;
}

bool tmsg_admit_same(const tmsg_endpoint_t *a, const tmsg_endpoint_t *b)
{
    const char *of_a = a->admit.principal, *of_b = b->admit.principal;

    if (a->admit.keyring != b->admit.keyring ||
        !tmsg_tls_is_same(a->admit.tls, b->admit.tls)) {
        return false;
    }
    return of_a == NULL || of_b == NULL ? of_a == of_b
                                        : strcmp(of_a, of_b) == 0;
}

const char *tmsg_endpoint_principal(const tmsg_endpoint_t *endpoint)
{
    return atomic_load(&endpoint->admit.principal);
}

/* Tells the addresses of the socket's ends, so that the proof covers them.
 * Nobody compares them: a relay, or a translation of addresses, may stand
 * between the peers. */
static void tell_ends(const tmsg_endpoint_t *endpoint, tmsg_hello_t *hello)
{
    tmsg_address_t local;

    if (!tmsg_schemes[endpoint->link.url.kind]->network ||
        tmsg_sock_local(endpoint->link.fd, &local) != TMSG_OK) {
        return;
    }
    tmsg_url_format_sockaddr(&local.sa.any, local.bytes, hello->near_end,
                             sizeof(hello->near_end));
    tmsg_sock_peer_name(endpoint->link.fd, hello->far_end,
                        sizeof(hello->far_end));
}

tmsg_status_t tmsg_admit_nonce(tmsg_hello_t *hello)
{
    return getrandom(hello->nonce, TMSG_NONCE_BYTES, 0) == TMSG_NONCE_BYTES
               ? TMSG_OK
               : tmsg_error_errno(TMSG_ERR_IO, "getrandom");
}

tmsg_status_t tmsg_admit_hello(tmsg_endpoint_t *endpoint, tmsg_hello_t *hello)
{
    hello->admission = 0;
    if (endpoint->admit.keyring == NULL) {
        return TMSG_OK;
    }
    hello->admission = TMSG_ADMISSION_VERSION;
    tell_ends(endpoint, hello);
    return tmsg_admit_nonce(hello);
}

void tmsg_admit_said(tmsg_endpoint_t *endpoint, const void *hello, size_t bytes)
{
    tmsg_proof_hash(hello, bytes, endpoint->admit.mine);
}

void tmsg_admit_heard(tmsg_endpoint_t *endpoint, const void *hello,
                      size_t bytes)
{
    tmsg_proof_hash(hello, bytes, endpoint->admit.theirs);
}

static tmsg_status_t turn_peer_away(tmsg_endpoint_t *endpoint,
                                    tmsg_turned_t turned, const char *why)
{
    endpoint->admit.turned = turned;
    tmsg_handshake_tell(endpoint, TMSG_ERR_REFUSED,
                        turned == TMSG_TURNED_OLDER   ? outward_older
                        : endpoint->admit.tls != NULL ? outward_tls
                                                      : outward);
    return tmsg_error_set(endpoint->dialling ? TMSG_ERR_INSECURE
                                             : TMSG_ERR_REFUSED,
                          "not admitted: %s", why);
}

tmsg_status_t tmsg_admit_expect(tmsg_endpoint_t *endpoint,
                                const tmsg_hello_t *theirs)
{
    if (endpoint->admit.keyring == NULL) {
        return TMSG_OK;
    }
    if (theirs->wire_version != TMSG_WIRE_VERSION) { /* the rest is unknown */
        return tmsg_error_set(TMSG_ERR_INCOMPATIBLE,
                              "peer speaks wire version %u, this side %u",
                              theirs->wire_version, TMSG_WIRE_VERSION);
    }
    if (theirs->admission == TMSG_HELLO_NO_ADMISSION) {
        return turn_peer_away(endpoint, TMSG_TURNED_OLDER,
                              "the peer is of an older version of tensormsg, "
                              "without admission: it cannot prove a key");
    }
    if (theirs->admission == 0 ||
        sodium_is_zero(theirs->nonce, TMSG_NONCE_BYTES)) {
        return turn_peer_away(
            endpoint, TMSG_TURNED_NO_KEY,
            "the peer has no key set, and this side asks for one");
    }
    return TMSG_OK;
}

static void transcript_of(const tmsg_endpoint_t *endpoint, uint8_t *transcript)
{
    const tmsg_admit_t *admit = &endpoint->admit;

    if (endpoint->dialling) {
        tmsg_proof_transcript(admit->mine, admit->theirs, transcript);
    } else {
        tmsg_proof_transcript(admit->theirs, admit->mine, transcript);
    }
}

size_t tmsg_admit_prove_all(tmsg_keyring_t *keyring, unsigned most,
                            tmsg_role_t role, const uint8_t *transcript,
                            uint8_t *proofs)
{
    tmsg_keys_t keys;
    unsigned count;

    tmsg_keyring_copy(keyring, &keys);
    count = keys.count < most ? keys.count : most;
    for (unsigned i = 0; i < count; i++) {
        tmsg_proof_make(keys.keys[i].bytes, role, transcript,
                        proofs + (size_t)i * TMSG_PROOF_BYTES);
    }
    tmsg_keys_wipe(&keys);
    return (size_t)count * TMSG_PROOF_BYTES;
}

tmsg_status_t tmsg_admit_prove(tmsg_endpoint_t *endpoint)
{
    uint8_t transcript[TMSG_HASH_BYTES];
    uint8_t proofs[TMSG_PROOFS_MOST * TMSG_PROOF_BYTES];
    size_t bytes;

    transcript_of(endpoint, transcript);
    bytes = tmsg_admit_prove_all(endpoint->admit.keyring, TMSG_PROOFS_MOST,
                                 TMSG_ROLE_DIALLING, transcript, proofs);
    if (bytes == 0) {
        return turn_peer_away(endpoint, TMSG_TURNED_NO_KEY,
                              "this side's keyring is empty");
    }
    tmsg_proof_bind(transcript, proofs, bytes, endpoint->admit.bound);
    endpoint->admit.proved = true;
    return tmsg_link_put(endpoint, TMSG_FRAME_PROOF, proofs, bytes);
}

const tmsg_key_t *tmsg_admit_find(const tmsg_keys_t *keys, tmsg_role_t role,
                                  const uint8_t *transcript,
                                  const uint8_t *proofs, size_t bytes)
{
    const tmsg_key_t *found = NULL;
    uint8_t proof[TMSG_PROOF_BYTES];

    for (unsigned i = 0; i < keys->count; i++) {
        tmsg_proof_make(keys->keys[i].bytes, role, transcript, proof);
        for (size_t at = 0; at < bytes; at += TMSG_PROOF_BYTES) {
            if (sodium_memcmp(proof, proofs + at, TMSG_PROOF_BYTES) == 0 &&
                found == NULL) {
                found = &keys->keys[i];
            }
        }
    }
    sodium_memzero(proof, sizeof(proof));
    return found;
}

/* Sets the endpoint's principal, which never changes: a session belongs to one
 * principal. */
static tmsg_status_t name_principal(tmsg_endpoint_t *endpoint,
                                    const char *principal)
{
    tmsg_admit_t *admit = &endpoint->admit;
    char why[2 * TMSG_PRINCIPAL_BYTES + 80];

    if (admit->principal == NULL) {
        snprintf(admit->name, sizeof(admit->name), "%s", principal);
        admit->principal = admit->name;
        return TMSG_OK;
    }
    if (strcmp(admit->name, principal) == 0) {
        return TMSG_OK;
    }
    snprintf(why, sizeof(why),
             "the peer proves that it is '%s', and the session is one with "
             "'%s'",
             principal, admit->name);
    return turn_peer_away(endpoint, TMSG_TURNED_WRONG_KEY, why);
}

tmsg_status_t tmsg_admit_by_tls(tmsg_endpoint_t *endpoint)
{
    tmsg_status_t status;

    if (endpoint->admit.tls == NULL) {
        return TMSG_OK;
    }
    status = name_principal(endpoint, tmsg_secure_peer(&endpoint->link.stream));
    endpoint->admit.admitted = status == TMSG_OK;
    return status;
}

static void protect_frames(tmsg_endpoint_t *endpoint, const tmsg_key_t *key)
{
    const uint8_t *bound = endpoint->admit.bound;
    tmsg_role_t mine =
        endpoint->dialling ? TMSG_ROLE_DIALLING : TMSG_ROLE_DIALLED;
    tmsg_role_t theirs =
        endpoint->dialling ? TMSG_ROLE_DIALLED : TMSG_ROLE_DIALLING;
    uint8_t tx[TMSG_KEY_BYTES], rx[TMSG_KEY_BYTES];

    tmsg_proof_frame_key(key->bytes, mine, bound, tx);
    tmsg_proof_frame_key(key->bytes, theirs, bound, rx);
    tmsg_frame_protect(&endpoint->link.stream, tx, rx, TMSG_FRAME_MAX_BYTES);
    sodium_memzero(tx, sizeof(tx));
    sodium_memzero(rx, sizeof(rx));
    endpoint->admit.admitted = true;
}

static tmsg_status_t answer_proof(tmsg_endpoint_t *endpoint,
                                  const tmsg_key_t *key)
{
    uint8_t proof[TMSG_PROOF_BYTES];

    tmsg_proof_make(key->bytes, TMSG_ROLE_DIALLED, endpoint->admit.bound,
                    proof);
    endpoint->admit.proved = true;
    return tmsg_link_put(endpoint, TMSG_FRAME_PROOF, proof, sizeof(proof));
}

/* Returns the key that the peer has proved, on either side. NULL: none. */
static const tmsg_key_t *find_proved(tmsg_endpoint_t *endpoint,
                                     const tmsg_keys_t *keys,
                                     const uint8_t *data, size_t bytes)
{
    uint8_t transcript[TMSG_HASH_BYTES];

    if (endpoint->dialling) {
        return tmsg_admit_find(keys, TMSG_ROLE_DIALLED, endpoint->admit.bound,
                               data, bytes);
    }
    transcript_of(endpoint, transcript);
    tmsg_proof_bind(transcript, data, bytes, endpoint->admit.bound);
    return tmsg_admit_find(keys, TMSG_ROLE_DIALLING, transcript, data, bytes);
}

static tmsg_status_t judge_proofs(tmsg_endpoint_t *endpoint,
                                  const tmsg_keys_t *keys, const uint8_t *data,
                                  size_t bytes)
{
    const tmsg_key_t *key = find_proved(endpoint, keys, data, bytes);
    tmsg_status_t status;

    if (key == NULL) {
        return turn_peer_away(
            endpoint, TMSG_TURNED_WRONG_KEY,
            "the peer has proved no key that is in this side's "
            "keyring");
    }
    status = name_principal(endpoint, key->principal);
    if (status == TMSG_OK && !endpoint->dialling) {
        status = answer_proof(endpoint, key);
    }
    if (status == TMSG_OK) {
        protect_frames(endpoint, key);
    }
    return status;
}

tmsg_status_t tmsg_admit_judge(tmsg_endpoint_t *endpoint, const uint8_t *data,
                               size_t bytes)
{
    tmsg_admit_t *admit = &endpoint->admit;
    size_t most =
        endpoint->dialling ? 1 : TMSG_PROOFS_MOST; /* it answers one of ours */
    tmsg_keys_t keys;
    tmsg_status_t status;

    if (admit->keyring == NULL || !endpoint->link.hello_done ||
        admit->admitted || admit->proved != endpoint->dialling) {
        return tmsg_error_set(TMSG_ERR_MALFORMED, "a proof out of turn");
    }
    if (bytes == 0 || bytes % TMSG_PROOF_BYTES != 0 ||
        bytes > most * TMSG_PROOF_BYTES) {
        return tmsg_error_set(TMSG_ERR_MALFORMED, "a proof of %zu bytes",
                              bytes);
    }
    tmsg_keyring_copy(admit->keyring, &keys);
    status = judge_proofs(endpoint, &keys, data, bytes);
    tmsg_keys_wipe(&keys);
    return status;
}
