/* SPDX-License-Identifier: BSD-3-Clause */
/* Which transports and keys UCX is asked for: CUDA's where the process uses
 * CUDA and the UCX that it has brings the plug-in along, which is in the folder
 * "ucx" beside it. Where that lies here is a link to a UCX that has none
 * (CMakeLists.txt); the plug-in is put there, empty, and taken away again, and
 * nothing is sent. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "am/ucx/config.h"
#include "support/must.h"
#include "support/simulated_devices.h"

static char plugin[PATH_MAX];

/* Beside libucp as the loader found it. */
static void find_place(void)
{
    void *symbol = dlsym(RTLD_DEFAULT, "ucp_worker_progress");
    Dl_info info;
    char *end;

    unsetenv("UCX_TLS");
    must_true(symbol != NULL && dladdr(symbol, &info) != 0);
    snprintf(plugin, sizeof(plugin) - 32, "%s", info.dli_fname);
    must_say(plugin, "/tests/cuda/aware"); /* not the machine's own */
    end = strrchr(plugin, '/');
    strcpy(end, "/ucx");
    (void)mkdir(plugin, 0755);
    strcat(end, "/libuct_cuda.so.0");
    (void)unlink(plugin);
}

static void put_plugin(void)
{
    int fd = open(plugin, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);

    must_true(fd >= 0);
    close(fd);
}

static void take_plugin(void) { (void)unlink(plugin); }

TestSuite(transports, .init = find_place, .fini = take_plugin);

/* "": of shared memory alone. */
static void are(const char *device, const char *wanted)
{
    static const tmsg_ucx_given_t none;
    tmsg_ucx_scope_t scope = {.family = 0};
    const tmsg_ucx_key_t *key;
    tmsg_ucx_keys_t keys;

    snprintf(scope.device, sizeof(scope.device), "%s", device);
    must(tmsg_ucx_config_resolve(&none, &scope, &keys));
    key = tmsg_ucx_config_key(&keys, "UCX_TLS");
    cr_assert_str_eq(key == NULL ? "" : key->value, wanted);
}

Test(transports, have_cudas_where_ucx_has_them)
{
    put_plugin();
    devices_begin();
    are("", "posix,cma,self,cuda");
    are("lo", "posix,cma,self,tcp,cuda");
    are("eth0", ""); /* UCX's own choice, which has them */
}

Test(transports, have_none_that_ucx_has_not)
{
    devices_begin();
    are("", "posix,cma,self");
    are("lo", "posix,cma,self,tcp");
}

/* Whose libcuda.so.1 nobody loads for it. */
Test(transports, have_none_in_a_process_that_uses_no_cuda)
{
    put_plugin();
    are("", "posix,cma,self");
    are("lo", "posix,cma,self,tcp");
    must_true(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD) == NULL);
}

Test(transports, have_none_where_the_driver_does_not_work)
{
    put_plugin();
    setenv("FAKE_CUDA_INIT", "999", 1);
    must_true(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != NULL);
    are("", "posix,cma,self");
}

/* What the user says stays. */
Test(transports, are_the_users_where_he_says)
{
    put_plugin();
    devices_begin();
    setenv("UCX_TLS", "tcp", 1);
    are("", "tcp");
}

static const char get[] = "UCX_CUDA_IPC_ENABLE_GET_ZCOPY";
static const char kind[] = "UCX_CUDA_COPY_ASYNC_MEM_TYPE";
static const char pipeline[] = "UCX_RNDV_PIPELINE_ERROR_HANDLING";
static const char taken[] = "UCX_RNDV_FRAG_ALLOC_COUNT";

/* What a key of UCX is set to in shared memory; NULL: it is not set. */
static const char *value_of(const char *name, const char *code,
                            const char *file)
{
    const tmsg_ucx_given_t given = {code, file, "a file"};
    static const tmsg_ucx_scope_t shared;
    static tmsg_ucx_keys_t keys;
    const tmsg_ucx_key_t *key;

    must(tmsg_ucx_config_resolve(&given, &shared, &keys));
    key = tmsg_ucx_config_key(&keys, name);
    return key == NULL ? NULL : key->value;
}

static void is(const char *name, const char *wanted)
{
    const char *value = value_of(name, NULL, NULL);

    cr_assert_str_eq(value == NULL ? "" : value, wanted, "%s=%s", name, value);
}

/* UCX 1.13 would take none of these names: it complains of what it does not
 * know. */
static bool is_of_today(void) { return tmsg_ucx_version().minor >= 18; }

static void have_keys(bool any)
{
    is(get, any ? "on" : "");
    is(kind, any ? "cuda" : "");
    is(pipeline, any ? "y" : "");
    is(taken, any ? "host:128,cuda:8" : "");
}

Test(transports, of_cuda_have_keys_that_the_ucx_of_today_knows)
{
    have_keys(false); /* no plug-in, no driver */
    devices_begin();
    have_keys(false);
    put_plugin();
    have_keys(is_of_today());
}

Test(transports, have_keys_for_those_that_are_asked_for)
{
    put_plugin();
    devices_begin();
    setenv("UCX_TLS", "posix,self", 1);
    have_keys(false);
    setenv("UCX_TLS", "posix,self,cuda_copy", 1);
    is(get, "");
    is(kind, is_of_today() ? "cuda" : "");
    setenv("UCX_TLS", "^cuda_copy", 1);
    is(get, is_of_today() ? "on" : "");
    is(kind, "");
}

Test(transports, have_keys_below_those_of_the_user)
{
    put_plugin();
    devices_begin();
    setenv(get, "off", 1);
    is(get, is_of_today() ? "off" : "");
    cr_assert_str_eq(value_of(taken, "RNDV_FRAG_ALLOC_COUNT=cuda:2", NULL),
                     "cuda:2");
    cr_assert_str_eq(value_of(pipeline, NULL, "RNDV_PIPELINE_ERROR_HANDLING=n"),
                     "n");
    cr_assert_str_eq(value_of(get, NULL, "CUDA_IPC_ENABLE_GET_ZCOPY=auto"),
                     "off"); /* the environment is before a file */
}
