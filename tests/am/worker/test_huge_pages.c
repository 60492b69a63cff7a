/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* The library's memory is of huge pages from where it is asked for, and not
 * below. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "am/worker/staging.h"
#include "am/worker/worker.h"
#include "support/device_maps.h"
#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/simulated_devices.h"

#define MIB ((size_t)1 << 20)
#define MARGIN ((size_t)128 << 10) /* of pages that are no whole ones */

/* Whether the kernel was asked for huge pages there: "hg" of the mapping's
 * flags. It may have none to give. */
static bool asked(const void *data)
{
    FILE *maps = fopen("/proc/self/smaps", "r");
    uintptr_t begin, end;
    bool inside = false, huge = false;
    char line[512];

    must_true(maps != NULL);
    while (fgets(line, sizeof(line), maps) != NULL) {
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2) {
            inside = (uintptr_t)data >= begin && (uintptr_t)data < end;
        } else if (inside && strncmp(line, "VmFlags:", 8) == 0) {
            huge = strstr(line, " hg") != NULL;
        }
    }
    fclose(maps);
    return huge;
}

static void need_huge_pages(void)
{
    if (access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) != 0) {
        cr_skip_test("this kernel has no transparent huge pages");
    }
}

/* Of a map of one tensor that is received into the library's memory. */
static bool receives(pair_t *pair, size_t bytes)
{
    tmsg_request_t *sent =
        send_map(pair->to_a, sample_bytes(bytes, bytes), TMSG_SEND_ACKED);
    tmsg_message_t *message = pair_take(pair, &pair->a);
    tmsg_tensor_t tensor;
    bool huge;

    sample_check_bytes(bytes, bytes, tmsg_message_map(message));
    must(tmsg_map_at(tmsg_message_map(message), 0, NULL, &tensor));
    huge = asked((uint8_t *)tensor.data + bytes / 2);
    must(pair_finish(pair, sent));
    tmsg_message_destroy(message);
    return huge;
}

static void receive(const char *least, size_t below, size_t from)
{
    pair_t pair;

    need_huge_pages();
    if (least != NULL) {
        setenv("TENSORMSG_HUGE_PAGE_BYTES", least, 1);
    }
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must_eq(receives(&pair, below), false);
    if (from > 0) {
        must_eq(receives(&pair, from), true);
    }
    pair_close(&pair);
}

Test(huge_pages, come_from_4_mib_on)
{
    receive(NULL, 4 * MIB - MARGIN, 4 * MIB);
}

Test(huge_pages, come_from_where_it_is_said)
{
    receive("2097152", 2 * MIB - MARGIN, 2 * MIB);
}

Test(huge_pages, come_nowhere) { receive("0", 32 * MIB, 0); }

/* Buffers of 1 MiB, between the host and a device. */
static void check_pinned(bool huge)
{
    const device_tensor_t tensor[] = {{.device = 0, .bytes = 2 * MIB}};
    tmsg_request_t *sent;
    tmsg_message_t *message;
    const tmsg_chunk_t *chunk;
    pair_t pair;

    device_maps_begin();
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    sent = send_map(pair.to_a, device_map(7, tensor, 1), TMSG_SEND_ACKED);
    message = pair_take(&pair, &pair.a);
    device_map_check(7, tensor, 1, tmsg_message_map(message));
    must(pair_finish(&pair, sent));
    tmsg_message_destroy(message);
    must_true(pair.b.worker->stage.out.spare.count > 0);
    chunk = TMSG_CONTAINER_OF(pair.b.worker->stage.out.spare.head, tmsg_chunk_t,
                              node);
    must_eq(asked(chunk->data + chunk->capacity / 2), huge);
    pair_close(&pair);
    device_maps_end();
}

Test(huge_pages, are_pinned_where_it_is_said)
{
    need_huge_pages();
    setenv("TENSORMSG_HUGE_PAGE_BYTES", "1048576", 1);
    check_pinned(true);
}

Test(huge_pages, are_not_pinned_else)
{
    need_huge_pages();
    check_pinned(false);
}
