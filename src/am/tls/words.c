/* SPDX-License-Identifier: BSD-3-Clause */
/* Says why a connection ended, in words that name what is to be done. */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/sslerr.h>
#include <stdio.h>
#include <string.h>

#include "am/boot/frame.h"
#include "am/boot/refusal.h"
#include "am/tls/secure.h"
#include "core/bytes.h"
#include "core/error.h"

/* The reason of an error that is an alert of the peer is this much more than
 * the alert's number. */
#define ALERT 1000
#define ALERT_MOST 255

typedef struct {
    int reason;
    tmsg_status_t status;
    const char *words;
} reason_t;

static const reason_t alerts[] = {
    {SSL_AD_UNKNOWN_CA, TMSG_ERR_REFUSED,
     "this side's certificate is not signed by one of its authorities (ca)"},
    {SSL_AD_BAD_CERTIFICATE, TMSG_ERR_REFUSED,
     "this side's certificate is not one that it takes"},
    {SSL_AD_UNSUPPORTED_CERTIFICATE, TMSG_ERR_REFUSED,
     "this side's certificate is not for this side (its extended key usage)"},
    {SSL_AD_CERTIFICATE_EXPIRED, TMSG_ERR_REFUSED,
     "this side's certificate has expired, or is not yet valid, by its clock"},
    {SSL_AD_CERTIFICATE_REVOKED, TMSG_ERR_REFUSED,
     "this side's certificate was revoked"},
    {SSL_AD_CERTIFICATE_UNKNOWN, TMSG_ERR_REFUSED,
     "this side's certificate is not one that it takes"},
    {SSL_AD_CERTIFICATE_REQUIRED, TMSG_ERR_REFUSED,
     "it asks for a certificate, and this side has shown none"},
    {SSL_AD_ACCESS_DENIED, TMSG_ERR_REFUSED, "it does not let this side in"},
    {SSL_AD_UNKNOWN_PSK_IDENTITY, TMSG_ERR_REFUSED,
     "it does not know this side's key"},
    {SSL_AD_DECRYPT_ERROR, TMSG_ERR_REFUSED,
     "this side has not proved its key or certificate"},
    {SSL_AD_NO_APPLICATION_PROTOCOL, TMSG_ERR_INCOMPATIBLE,
     "it speaks TLS, but not tensormsg (no protocol tensormsg/1)"},
    {SSL_AD_PROTOCOL_VERSION, TMSG_ERR_INCOMPATIBLE,
     "it does not speak TLS 1.3"},
    {SSL_AD_HANDSHAKE_FAILURE, TMSG_ERR_REFUSED,
     "the two have no cipher in common, or one side uses certificates and the "
     "other a key that the first does not know"},
};

static const reason_t reasons[] = {
    {SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE, TMSG_ERR_REFUSED,
     "not admitted: the peer has shown no certificate"},
    {SSL_R_NO_APPLICATION_PROTOCOL, TMSG_ERR_INCOMPATIBLE,
     "the peer speaks TLS, but not tensormsg (no protocol tensormsg/1)"},
    {SSL_R_UNSUPPORTED_PROTOCOL, TMSG_ERR_INCOMPATIBLE,
     "the peer does not speak TLS 1.3"},
    {SSL_R_BAD_PROTOCOL_VERSION_NUMBER, TMSG_ERR_INCOMPATIBLE,
     "the peer does not speak TLS 1.3"},
    {SSL_R_NO_SHARED_CIPHER, TMSG_ERR_INCOMPATIBLE,
     "the two sides have no cipher in common"},
    {SSL_R_NO_SUITABLE_KEY_SHARE, TMSG_ERR_INCOMPATIBLE,
     "the two sides have no group for the exchange of keys in common"},
    {SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM, TMSG_ERR_INCOMPATIBLE,
     "the two sides have no signature algorithm in common"},
    {SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC, TMSG_ERR_CORRUPT,
     "a TLS record was changed, left out or repeated on its way"},
    {SSL_R_UNEXPECTED_EOF_WHILE_READING, TMSG_ERR_PEER_LOST,
     "the peer closed the connection in the TLS handshake"},
};

static const reason_t *find_reason(const reason_t *table, size_t count,
                                   int reason)
{
    for (size_t i = 0; i < count; i++) {
        if (table[i].reason == reason) {
            return &table[i];
        }
    }
    return NULL;
}

static void fail_by_alert(tmsg_secure_t *secure, int alert)
{
    const reason_t *found =
        find_reason(alerts, sizeof(alerts) / sizeof(alerts[0]), alert);

    if (found != NULL) {
        tmsg_secure_fail(secure, found->status, "the peer refuses: %s",
                         found->words);
    } else {
        tmsg_secure_fail(secure, TMSG_ERR_PEER_LOST, "the peer ends TLS: %s",
                         SSL_alert_desc_string_long(alert));
    }
}

/* Tells a peer of tcp:// why it is refused, so that it can read it. */
static void tell_in_clear(tmsg_secure_t *secure)
{
    static const char words[] = "this side uses tls://, and the peer tcp://";
    uint8_t frame[TMSG_FRAME_MAGIC_BYTES + TMSG_FRAME_HEADER_BYTES + 4 +
                  sizeof(words) - 1];
    uint8_t *at = frame + TMSG_FRAME_MAGIC_BYTES;

    memcpy(frame, TMSG_FRAME_MAGIC, TMSG_FRAME_MAGIC_BYTES);
    at = tmsg_put_le(at, 4 + sizeof(words) - 1, 4);
    *at++ = TMSG_FRAME_REFUSE;
    at = tmsg_put_le(at, (uint32_t)TMSG_ERR_INCOMPATIBLE, 4);
    memcpy(at, words, sizeof(words) - 1);
    tmsg_secure_say(secure, frame, sizeof(frame));
}

/* Returns whether what the peer said first is no TLS, and says so. */
static bool is_no_tls(tmsg_secure_t *secure)
{
    const uint8_t *begin = secure->begin;
    char shown[sizeof(secure->begin) + 1] = "";

    if (secure->begin_bytes == 0 || secure->up ||
        (begin[0] >= SSL3_RT_CHANGE_CIPHER_SPEC &&
         begin[0] <= SSL3_RT_APPLICATION_DATA &&
         (secure->begin_bytes == 1 || begin[1] == 3))) {
        return false;
    }
    if (memcmp(begin, TMSG_FRAME_MAGIC, secure->begin_bytes) == 0) {
        tmsg_secure_fail(secure, TMSG_ERR_INCOMPATIBLE,
                         "the peer speaks in the clear: it uses tcp://, and "
                         "this side tls://");
        tell_in_clear(secure);
        return true;
    }
    for (unsigned i = 0; i < secure->begin_bytes; i++) {
        shown[i] = begin[i] >= ' ' && begin[i] <= '~' ? (char)begin[i] : '.';
    }
    tmsg_secure_fail(secure, TMSG_ERR_MALFORMED,
                     "the peer does not speak TLS: it began with '%s'", shown);
    return true;
}

bool tmsg_secure_is_cut(const tmsg_secure_t *secure)
{
    return secure->dialling && !secure->heard &&
           (secure->ended || secure->read_error == ECONNRESET ||
            secure->read_error == EPIPE);
}

void tmsg_secure_tell_cut(tmsg_secure_t *secure)
{
    tmsg_secure_fail(secure, TMSG_ERR_BUSY,
                     "the listener closed the connection in the TLS handshake: "
                     "it has no free place, or does not use tls://");
}

void tmsg_secure_explain(tmsg_secure_t *secure)
{
    unsigned long error = ERR_peek_error();
    int reason = ERR_GET_REASON(error);
    const reason_t *found = NULL;
    char words[128];

    if (secure->failed != TMSG_OK || is_no_tls(secure)) {
        ERR_clear_error();
        return;
    }
    if (reason < ALERT && tmsg_secure_is_cut(secure)) {
        tmsg_secure_tell_cut(secure);
    } else if (secure->read_error != 0) {
        tmsg_secure_fail(secure, TMSG_ERR_PEER_LOST,
                         "reading from the peer: %s",
                         strerror(secure->read_error));
    } else if (ERR_GET_LIB(error) == ERR_LIB_SSL && reason > ALERT &&
               reason <= ALERT + ALERT_MOST) {
        fail_by_alert(secure, reason - ALERT);
    } else if (ERR_GET_LIB(error) == ERR_LIB_SSL) {
        found =
            find_reason(reasons, sizeof(reasons) / sizeof(reasons[0]), reason);
    }
    if (found != NULL && tmsg_tls_has_keys(secure->tls) &&
        (reason == SSL_R_NO_SHARED_CIPHER ||
         reason == SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM)) {
        tmsg_secure_fail(secure, TMSG_ERR_REFUSED,
                         "not admitted: the peer proves no key that is in this "
                         "side's keyring");
    } else if (found != NULL) {
        tmsg_secure_fail(secure, found->status, "%s", found->words);
    } else if (secure->ended) {
        tmsg_secure_fail(secure, TMSG_ERR_PEER_LOST,
                         "the peer closed the connection in the TLS handshake");
    }
    tmsg_secure_fail(secure, secure->up ? TMSG_ERR_CORRUPT : TMSG_ERR_MALFORMED,
                     "TLS: %s", tmsg_tls_last_words(words, sizeof(words)));
    ERR_clear_error();
}

const char *tmsg_tls_last_words(char *words, size_t bytes)
{
    unsigned long error = ERR_peek_last_error();
    const char *reason = error == 0 ? NULL : ERR_reason_error_string(error);

    snprintf(words, bytes, "%s", reason != NULL ? reason : "an unknown error");
    ERR_clear_error();
    return words;
}
