/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/ucx/config_check.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

#include "am/ucx/words.h"
#include "core/error.h"

#define PRINT_CONFIG_AND_HIDDEN (1 | 8) /* bits of ucs_config_print_flags_t */

/* Returns all that ucx_info -c -f prints, a NAME=VALUE a line, in memory that
 * the caller frees. UCX documents no call for this. NULL: this UCX lacks the
 * undocumented one. */
static char *list_keys(void)
{
    union {
        void *object;
        void (*call)(FILE *stream, const char *prefix, int flags, void *list);
    } print = {.object =
                   dlsym(RTLD_DEFAULT, "ucs_config_parser_print_all_opts")};
    void *tables = dlsym(RTLD_DEFAULT, "ucs_config_global_list");
    char *text = NULL;
    size_t bytes;
    FILE *stream;

    if (print.object == NULL || tables == NULL) {
        return NULL;
    }
    stream = open_memstream(&text, &bytes);
    if (stream != NULL) {
        print.call(stream, "UCX_", PRINT_CONFIG_AND_HIDDEN, tables);
        fclose(stream);
    }
    return text;
}

/* Returns what ucp_config_modify() knows by its full name: the keys of UCP and
 * of UCS beneath it, and of no transport. The caller frees the text. NULL: this
 * UCX does not say. */
static char *list_own_keys(void)
{
    union {
        void *object;
        void (*call)(FILE *stream, int flags);
    } print = {.object = dlsym(RTLD_DEFAULT, "ucs_global_opts_print")};
    ucp_config_t *config;
    char *text = NULL;
    size_t bytes;
    FILE *stream;

    tmsg_ucx_words_begin();
    if (print.object == NULL ||
        ucp_config_read(NULL, NULL, &config) != UCS_OK) {
        return NULL;
    }
    stream = open_memstream(&text, &bytes);
    if (stream != NULL) {
        ucp_config_print(config, stream, NULL,
                         (ucs_config_print_flags_t)PRINT_CONFIG_AND_HIDDEN);
        print.call(stream, PRINT_CONFIG_AND_HIDDEN);
        fclose(stream);
    }
    ucp_config_release(config);
    return text;
}

/* Returns whether a list has the line "UCX_<name>=...". */
static bool has_name(const char *list, const char *name)
{
    size_t length = strlen(name);
    const char *at = list;

    while ((at = strstr(at, name)) != NULL) {
        if ((at == list || at[-1] == '\n') && at[length] == '=') {
            return true;
        }
        at++;
    }
    return false;
}

/* Returns whether a line of the list begins with "UCX_<name>=" or
 * "UCX_..._<name>=": keys of transports are written without their prefix. */
static bool ends_a_name(const char *list, const char *name)
{
    size_t length = strlen(name);
    const char *at = list;

    while ((at = strstr(at, name)) != NULL) {
        if (at > list && at[-1] == '_' && at[length] == '=') {
            return true;
        }
        at++;
    }
    return false;
}

/* Returns whether a list has a key, or the keys of a family's members. UCX
 * lists MM_FIFO_SIZE, which posix and sysv share, as UCX_POSIX_FIFO_SIZE and
 * UCX_SYSV_FIFO_SIZE. */
static bool is_listed(const char *list, const char *name)
{
    const char *rest = strchr(name, '_');

    return ends_a_name(list, name) ||
           (rest != NULL && ends_a_name(list, rest + 1));
}

/* Looks for a key of the application in both lists. A transport's key by its
 * full name would be accepted silently and without effect up to UCX 1.16: `own`
 * is NULL for later ones. */
static tmsg_status_t check_known(const tmsg_ucx_key_t *key, const char *list,
                                 const char *own)
{
    const char *name = key->name + strlen("UCX_");

    if (!is_listed(list, name)) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "%s: %s=%s: this UCX has no such key",
                              tmsg_ucx_key_source(key), name, key->value);
    }
    if (own != NULL && !has_name(own, key->name) && has_name(list, key->name) &&
        !tmsg_ucx_config_is_translated(key)) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "%s: %s=%s: this UCX takes the keys of "
                              "transports without the transport's name",
                              tmsg_ucx_key_source(key), name, key->value);
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_ucx_check_keys(const tmsg_ucx_keys_t *keys)
{
    tmsg_ucx_version_t version = tmsg_ucx_version();
    char *list = NULL, *own = NULL;
    tmsg_status_t status = TMSG_OK;

    if (version.major > 1 || version.minor >= 21) {
        return TMSG_OK; /* ucp_config_modify() has checked the key */
    }
    for (size_t i = 0; i < keys->count && status == TMSG_OK; i++) {
        if (!tmsg_ucx_key_is_given(&keys->keys[i])) {
            continue;
        }
        if (list == NULL) {
            list = list_keys();
            own = version.minor >= 17 ? NULL : list_own_keys();
        }
        if (list == NULL) {
            break;
        }
        status = check_known(&keys->keys[i], list, own);
    }
    free(list);
    free(own);
    return status;
}

tmsg_status_t tmsg_ucx_check_keys_early(const tmsg_ucx_given_t *given)
{
    static const tmsg_ucx_scope_t everything = {.device = "all"};
    tmsg_ucx_keys_t keys;
    ucp_config_t *config;
    tmsg_status_t status = tmsg_ucx_config_resolve(given, &everything, &keys);

    if (status == TMSG_OK) {
        status = tmsg_ucx_config_apply(&keys, &config);
    }
    if (status == TMSG_OK) {
        ucp_config_release(config);
    }
    /* Other errors may not happen in the scope of a connection. */
    return status == TMSG_ERR_INVALID_PARAM ? status : TMSG_OK;
}
