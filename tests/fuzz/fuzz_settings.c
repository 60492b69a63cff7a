/* SPDX-License-Identifier: BSD-3-Clause */
/* The configuration file, which people write by hand. */
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "am/worker/settings.h"

static void load(const char *path)
{
    tmsg_settings_t settings;
    tmsg_status_t status = tmsg_settings_read(path, &settings);

    assert(status == TMSG_OK || status == TMSG_ERR_INVALID_PARAM ||
           status == TMSG_ERR_LIMIT_EXCEEDED);
    assert((settings.path != NULL) == (status == TMSG_OK));
    tmsg_settings_free(&settings);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fd = memfd_create("settings", MFD_CLOEXEC);
    char path[64];

    if (fd >= 0 && write(fd, data, size) == (ssize_t)size) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        load(path);
    }
    close(fd);
    return 0;
}
