/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/endpoint/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "core/shown.h"

const char *tmsg_endpoint_whom(const tmsg_endpoint_t *endpoint,
                               char text[TMSG_LOG_WHOM_BYTES])
{
    const char *principal = atomic_load(&endpoint->admit.principal);
    const char *name = principal != NULL ? principal : endpoint->peer_url;
    const char *host = strstr(name, "://");
    size_t bytes = strlen(name);

    if (principal == NULL && host != NULL && host[3] != '\0' &&
        host[3] != '/') { /* neither a path nor nothing */
        const char *port = strrchr(host + 3, ':');

        name = host + 3;
        bytes = port != NULL && strchr(port, ']') == NULL
                    ? (size_t)(port - name)
                    : strlen(name);
    }
    tmsg_shown_format(text, TMSG_LOG_WHOM_BYTES, "%.*s", (int)bytes, name);
    return text;
}

void tmsg_endpoint_log(const tmsg_endpoint_t *endpoint, tmsg_log_kind_t kind,
                       tmsg_log_level_t level, const char *format, ...)
{
    char whom[TMSG_LOG_WHOM_BYTES], line[TMSG_ERROR_BYTES + 200];
    va_list args;

    if (!tmsg_log_wanted(level)) {
        return;
    }
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    tmsg_log_of(kind, tmsg_endpoint_whom(endpoint, whom), level, "%s: %s",
                endpoint->peer, line);
}
