/* SPDX-License-Identifier: BSD-3-Clause */
/* Loaded into the command by LD_PRELOAD: of every third map that arrives, as a
 * message or with a call, one bit is another. */
#include <dlfcn.h>
#include <stdatomic.h>

#include <tensormsg/tensormsg.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static const tmsg_map_t *damage(const tmsg_map_t *map)
{
    static atomic_uint arrived;
    uint64_t bytes = 0;
    tmsg_tensor_t tensor;

    if (tmsg_map_at(map, 0, NULL, &tensor) == TMSG_OK && ++arrived % 3 == 0 &&
        tmsg_tensor_bytes(&tensor, &bytes) == TMSG_OK && bytes > 13) {
        ((uint8_t *)tensor.data)[13] ^= 0x10;
    }
    return map;
}

__attribute__((visibility("default"))) const tmsg_map_t *
tmsg_message_map(const tmsg_message_t *message)
{
    return damage(NEXT(tmsg_message_map)(message));
}

__attribute__((visibility("default"))) const tmsg_map_t *
tmsg_task_map(const tmsg_task_t *task)
{
    return damage(NEXT(tmsg_task_map)(task));
}
