/* SPDX-License-Identifier: BSD-3-Clause */
/* Which transports UCX is asked for: CUDA's where the process uses CUDA and the
 * UCX that it has brings the plug-in along, which is in the folder "ucx" beside
 * it. Where that lies here is a link to a UCX that has none
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
    must_say(plugin, "/tests/cuda/aware/"); /* not the machine's own */
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
