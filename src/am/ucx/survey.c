/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/ucx/survey.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

#include "am/ucx/config_check.h"
#include "am/ucx/fork_guard.h"
#include "am/ucx/ucx.h"
#include "core/error.h"

/* Keeps only the transports of what ucp_context_print_info() says, a line each.
 * The report has lines such as
 *
 *   resource 3 : md 3 dev 2 flags --sa posix/memory
 *
 * whose last word is a transport on a device. */
static void keep_transports(char *report)
{
    char *line, *rest, *to = report;

    for (line = strtok_r(report, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        const char *word = strrchr(line, ' ');

        if (strstr(line, "resource ") != NULL && word != NULL) {
            size_t bytes = strlen(word + 1);

            memmove(to, word + 1, bytes);
            to += bytes;
            *to++ = '\n';
        }
    }
    *to = '\0';
}

static tmsg_status_t list_transports(ucp_context_h context, char **text_p)
{
    char *report = NULL;
    size_t size;
    FILE *stream = open_memstream(&report, &size);

    if (stream == NULL) {
        return tmsg_error_memory("UCX's transports");
    }
    ucp_context_print_info(context, stream);
    if (fclose(stream) != 0) {
        free(report);
        return tmsg_error_memory("UCX's transports");
    }
    keep_transports(report);
    *text_p = report;
    return TMSG_OK;
}

static tmsg_status_t survey(const tmsg_ucx_keys_t *keys,
                            tmsg_ucx_survey_t *survey_p)
{
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                 .features = UCP_FEATURE_AM};
    ucp_config_t *config;
    ucp_context_h context;
    ucs_status_t ucs;
    int mode;
    tmsg_status_t status = tmsg_ucx_config_apply(keys, &config);

    *survey_p = (tmsg_ucx_survey_t){.transports = NULL};
    if (status != TMSG_OK) {
        return status;
    }
    mode = tmsg_ucx_relax();
    ucs = ucp_init(&params, config, &context);
    tmsg_ucx_restore(mode);
    ucp_config_release(config);
    if (ucs != UCS_OK) {
        return tmsg_error_set(TMSG_ERR_INTERNAL, "%s", ucs_status_string(ucs));
    }
    survey_p->memory_types = tmsg_ucx_memory(context);
    status = tmsg_ucx_check_keys(keys);
    if (status == TMSG_OK) {
        status = list_transports(context, &survey_p->transports);
    }
    ucp_cleanup(context);
    return status;
}

tmsg_status_t tmsg_ucx_survey(const tmsg_ucx_keys_t *keys,
                              tmsg_ucx_survey_t *survey_p)
{
    tmsg_status_t status;

    tmsg_fork_guard_begin();
    status = tmsg_fork_guard_enter();
    if (status == TMSG_OK) {
        status = survey(keys, survey_p);
        tmsg_fork_guard_leave();
    }
    tmsg_fork_guard_end();
    return status;
}
