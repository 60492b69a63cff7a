/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/principal.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <tensormsg/key.h>

#include "core/error.h"

/* Returns whether a text is a list of names in printable ASCII. There is one
 * space between two names, and no other space. */
static bool is_list(const char *list)
{
    size_t bytes = strlen(list), length = 0;

    for (size_t i = 0; i < bytes; i++) {
        bool between = i > 0 && i + 1 < bytes && list[i + 1] != ' ';

        length = list[i] == ' ' ? 0 : length + 1;
        if (list[i] < ' ' || list[i] > '~' || length > TMSG_PRINCIPAL_MOST ||
            (list[i] == ' ' && !between)) {
            return false;
        }
    }
    return bytes > 0;
}

tmsg_status_t tmsg_principals_read(const char *of, const char *list,
                                   char **copy_p)
{
    size_t bytes;
    char *copy;

    if (list == NULL) {
        *copy_p = NULL;
        return TMSG_OK;
    }
    if (!is_list(list)) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "%s: principals '%s' are not names of up to "
                              "%d bytes with a space between two",
                              of, tmsg_error_name(list, strlen(list)).text,
                              TMSG_PRINCIPAL_MOST);
    }
    bytes = strlen(list) + 1;
    copy = malloc(bytes);
    if (copy == NULL) {
        return tmsg_error_memory("principals");
    }
    memcpy(copy, list, bytes);
    *copy_p = copy;
    return TMSG_OK;
}

bool tmsg_principals_have(const char *list, const char *name)
{
    size_t bytes = strlen(name);

    while (list != NULL) {
        if (strncmp(list, name, bytes) == 0 &&
            (list[bytes] == ' ' || list[bytes] == '\0')) {
            return true;
        }
        list = strchr(list, ' ');
        list = list == NULL ? NULL : list + 1;
    }
    return false;
}

bool tmsg_principals_allow(const char *list, const tmsg_endpoint_t *endpoint)
{
    /* This call takes no lock. */
    const char *name = tmsg_endpoint_principal(endpoint);

    return list == NULL ||
           (name != NULL && (tmsg_principals_have(list, TMSG_PRINCIPAL_ANY) ||
                             tmsg_principals_have(list, name)));
}

tmsg_status_t tmsg_principals_check(const char *list,
                                    const tmsg_endpoint_t *endpoint)
{
    const char *name = tmsg_endpoint_principal(endpoint);

    if (tmsg_principals_allow(list, endpoint)) {
        return TMSG_OK;
    }
    return name == NULL
               ? tmsg_error_set(
                     TMSG_ERR_REFUSED,
                     "the method is only for callers that have proved a key")
               : tmsg_error_set(TMSG_ERR_REFUSED, "the method is not for '%s'",
                                name);
}

const char *tmsg_task_principal(const tmsg_task_t *task)
{
    return tmsg_endpoint_principal(tmsg_task_endpoint(task));
}
