/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/method.h"

#include <stdlib.h>
#include <string.h>

#include <tensormsg/json.h>

#include "core/utf8.h"
#include "rpc/principal.h"

void tmsg_method_free(tmsg_method_t *method)
{
    if (method != NULL) {
        tmsg_signature_destroy(method->signature);
        tmsg_string_free(method->signature_text);
        free(method->description);
        free(method->principals);
        free(method);
    }
}

bool tmsg_method_is_reserved(const char *name, size_t bytes)
{
    size_t prefix = strlen(TMSG_METHOD_RESERVED);

    return bytes >= prefix && memcmp(name, TMSG_METHOD_RESERVED, prefix) == 0;
}

/* Gives the method its description, which is one line of UTF-8. Errors:
 * LIMIT_EXCEEDED, INVALID_PARAM, NO_MEMORY. */
static tmsg_status_t set_description(tmsg_method_t *method, const char *text)
{
    size_t bytes = strnlen(text, TMSG_METHOD_DESCRIPTION_MAX + 1);
    bool plain = tmsg_utf8_valid(text, bytes);

    if (bytes > TMSG_METHOD_DESCRIPTION_MAX) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "method '%s': its description has more than %d "
                              "bytes",
                              method->name, TMSG_METHOD_DESCRIPTION_MAX);
    }
    for (size_t i = 0; i < bytes; i++) {
        plain = plain && (unsigned char)text[i] >= 0x20 && text[i] != 0x7f;
    }
    if (!plain) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "method '%s': its description is not one line of "
                              "UTF-8",
                              method->name);
    }
    method->description = strdup(text);
    return method->description == NULL ? tmsg_error_memory("a description")
                                       : TMSG_OK;
}

/* Gives the method its signature. The method keeps the text that
 * tmsg_signature_to_text() writes, and not the given text: the former has one
 * form and no control characters. Errors: those of tmsg_signature_parse() and
 * tmsg_signature_to_text(). */
static tmsg_status_t set_signature(tmsg_method_t *method, const char *text)
{
    char why[TMSG_ERROR_BYTES];
    tmsg_status_t status = tmsg_signature_parse(text, &method->signature);

    if (status == TMSG_OK) {
        status =
            tmsg_signature_to_text(method->signature, &method->signature_text);
    }
    if (status != TMSG_OK) {
        strcpy(why, tmsg_error_message());
        tmsg_error_set(status, "method '%s': %s", method->name, why);
    }
    return status;
}

tmsg_status_t tmsg_method_declare(tmsg_method_t *method,
                                  const tmsg_method_params_t *params)
{
    uint64_t mask = params == NULL ? 0 : params->field_mask;
    tmsg_status_t status = TMSG_OK;

    if (mask & TMSG_METHOD_PARAM_SIGNATURE && params->signature != NULL) {
        status = set_signature(method, params->signature);
    }
    if (status == TMSG_OK && mask & TMSG_METHOD_PARAM_DESCRIPTION &&
        params->description != NULL) {
        status = set_description(method, params->description);
    }
    if (status == TMSG_OK && mask & TMSG_METHOD_PARAM_PRINCIPALS) {
        status = tmsg_principals_read("method", params->principals,
                                      &method->principals);
    }
    return status;
}

tmsg_status_t tmsg_method_check_reply(const tmsg_method_t *method,
                                      const tmsg_map_t *request,
                                      const tmsg_map_t *reply)
{
    char why[TMSG_ERROR_BYTES];
    tmsg_status_t status =
        tmsg_signature_check_outputs(method->signature, request, reply);

    if (status != TMSG_OK) {
        strcpy(why, tmsg_error_message());
        status = tmsg_error_set(TMSG_ERR_INTERNAL, "%s", why);
    }
    return status;
}
