/* SPDX-License-Identifier: BSD-3-Clause */
/* Files of keys, which people write by hand. */
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "am/boot/key.h"

static void load(const char *path)
{
    static const uint8_t old[TMSG_KEY_BYTES] = {1};
    tmsg_keyring_t *keyring;
    tmsg_keys_t keys;
    tmsg_status_t status;

    if (tmsg_keyring_create(&keyring) != TMSG_OK ||
        tmsg_keyring_add(keyring, "old", old) != TMSG_OK) {
        return;
    }
    status = tmsg_keyring_load(keyring, path);
    tmsg_keyring_copy(keyring, &keys);
    assert(keys.count <= TMSG_KEYS_MOST);
    assert(status == TMSG_OK || keys.count == 1);
    for (unsigned i = 0; i < keys.count; i++) {
        assert(strlen(keys.keys[i].principal) > 0);
        assert(tmsg_principal_check(keys.keys[i].principal) == TMSG_OK);
    }
    tmsg_keyring_destroy(keyring);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fd = memfd_create("keys", MFD_CLOEXEC);
    char path[64];

    if (fd >= 0 && fchmod(fd, 0600) == 0 &&
        write(fd, data, size) == (ssize_t)size) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        load(path);
    }
    close(fd);
    return 0;
}
