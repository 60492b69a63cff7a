/* SPDX-License-Identifier: BSD-3-Clause */
/* Values of UCX's keys that are longer than usual: they are taken whole, or
 * refused by name. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

#include "am/ucx/config.h"
#include "support/must.h"

enum { LONG_WORDS = 60 };

static const tmsg_ucx_scope_t net_only = {.device = "lo", .net_only = true};
static const tmsg_ucx_scope_t usual = {.device = "lo"};

/* "<first>self,self,...,<last>", of which no key holds the whole. */
static const char *long_list(const char *first, const char *last)
{
    static char list[LONG_WORDS * 5 + 64];
    size_t used = (size_t)snprintf(list, sizeof(list), "%s", first);

    for (int i = 0; i < LONG_WORDS; i++) {
        used += (size_t)snprintf(list + used, sizeof(list) - used, "self,");
    }
    snprintf(list + used, sizeof(list) - used, "%s", last);
    return list;
}

/* What UCX says it has, opened with it: its own list is printed in part. */
static void must_have(const char *code, const tmsg_ucx_scope_t *scope,
                      const char *with, const char *without)
{
    const tmsg_ucx_given_t given = {.code = code};
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                 .features = UCP_FEATURE_AM};
    tmsg_ucx_keys_t keys;
    ucp_config_t *config;
    ucp_context_h context;
    char *all;
    size_t size;
    FILE *stream = open_memstream(&all, &size);

    must(tmsg_ucx_config_resolve(&given, scope, &keys));
    must(tmsg_ucx_config_apply(&keys, &config));
    must_eq(ucp_init(&params, config, &context), UCS_OK);
    ucp_config_release(config);
    ucp_context_print_info(context, stream);
    ucp_cleanup(context);
    must_eq(fclose(stream), 0);
    must_say(all, with);
    if (strstr(all, without) != NULL) {
        must_say(all, "nothing of what was left out");
    }
    free(all);
}

Test(ucx_config, a_long_list_keeps_its_network_without_shared_memory)
{
    setenv("UCX_TLS", long_list("posix,", "sysv,tcp"), 1);
    must_have(NULL, &net_only, "tcp/lo", "posix/");
    must_have(NULL, &net_only, "tcp/lo", "sysv/");
    must_have(NULL, &usual, "posix/", "cma/");
    must_have(NULL, &usual, "sysv/", "cma/");
    must_have(NULL, &usual, "tcp/lo", "cma/");
}

Test(ucx_config, cma_at_the_end_of_a_long_list_is_left_out)
{
    setenv("UCX_TLS", long_list("posix,", "cma,tcp"), 1);
    must_have(NULL, &usual, "tcp/lo", "cma/");
}

Test(ucx_config, a_long_exception_has_shared_memory_added)
{
    setenv("UCX_TLS", long_list("^", "cma"), 1);
    must_have(NULL, &net_only, "tcp/lo", "posix/");
    must_have(NULL, &net_only, "tcp/lo", "sysv/");
    must_have(NULL, &usual, "posix/", "cma/");
}

/* As long as it may be, or a byte or two less. */
Test(ucx_config, a_long_exception_of_the_application_has_it_added)
{
    const size_t most = sizeof(((tmsg_ucx_key_t *)0)->value) - 1;
    char code[256];

    for (size_t bytes = most - 3; bytes <= most; bytes++) {
        snprintf(code, sizeof(code), "TLS=%.*s", (int)bytes,
                 long_list("^", ""));
        memcpy(code + strlen("TLS=") + bytes - 4, ",cma", 4);
        must_have(code, &net_only, "tcp/lo", "posix/");
    }
}

static bool takes(const tmsg_ucx_scope_t *scope, const char *users)
{
    const tmsg_ucx_given_t none = {.code = NULL};
    tmsg_ucx_keys_t keys;

    must(tmsg_ucx_config_resolve(&none, scope, &keys));
    return tmsg_ucx_config_takes(&keys, users);
}

Test(ucx_config, the_end_of_a_long_list_counts)
{
    setenv("UCX_TLS", long_list("", "posix,tcp"), 1);
    must_true(takes(&usual, "posix,mm,sm,shm"));
    must_true(takes(&usual, "tcp"));
    must_true(!takes(&net_only, "posix,mm,sm,shm"));
    must_true(takes(&net_only, "tcp"));
    setenv("UCX_TLS", long_list("^", "posix"), 1);
    must_true(!takes(&usual, "posix,mm,sm,shm"));
    setenv("UCX_TLS", long_list("", "posix"), 1); /* nothing would be left */
    must_true(takes(&net_only, "posix,mm,sm,shm"));
}

Test(ucx_config, what_is_too_long_is_refused_by_name)
{
    char code[512];
    const tmsg_ucx_given_t given = {.code = code};

    snprintf(code, sizeof(code), "TLS=%s", long_list("", "tcp"));
    must_be(tmsg_ucx_config_check(&given), TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "the value of TLS has 303 bytes");
    must_say(tmsg_error_message(), "at most 207");
}

Test(ucx_config, no_key_is_one_too_many_in_silence)
{
    char code[2048];
    const tmsg_ucx_given_t given = {.code = code};
    size_t used = 0;

    for (int i = 0; i < 80; i++) {
        used += (size_t)snprintf(code + used, sizeof(code) - used, "A%d=1;", i);
        must_be(tmsg_ucx_config_check(&given),
                i < 40 ? TMSG_OK : TMSG_ERR_INVALID_PARAM);
    }
    must_say(tmsg_error_message(), "more than 40 keys");
}
