/* SPDX-License-Identifier: BSD-3-Clause */
/* What the receiver reads out of the sender's memory by itself: all of it
 * arrives, or none; never other bytes in place of those that cannot be read. */
#include <criterion/criterion.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/peers.h"

enum { MOST = 16 << 20 };

/* Memory of which a part can be made unreadable. */
typedef struct {
    uint8_t *bytes;
    size_t page;
} pages_t;

static pages_t pages_make(void)
{
    pages_t pages = {.page = (size_t)sysconf(_SC_PAGESIZE)};

    pages.bytes = mmap(NULL, MOST, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must_true(pages.bytes != MAP_FAILED);
    memset(pages.bytes, 1, MOST);
    return pages;
}

static void pages_free(pages_t *pages) { munmap(pages->bytes, MOST); }

/* From the page of `from` on, `count` pages. */
static void protect(const pages_t *pages, size_t from, size_t count, int how)
{
    must_eq(mprotect(pages->bytes + from / pages->page * pages->page,
                     count * pages->page, how),
            0);
}

static tmsg_map_t *map_of(uint8_t *bytes, size_t count, const char *name)
{
    const int64_t shape[] = {(int64_t)count};
    const tmsg_tensor_t tensor = {
        bytes, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, name, &tensor, NULL));
    return map;
}

static void open_reading(pair_t *pair, link_t link)
{
    pair_open(pair, link, DRIVE_POLLING, NULL, NULL);
    pair_await(pair, endpoint_is_read, pair->to_a, "a peer that reads");
}

/* The next message, and the only one: that before it never came. */
static void next_is_right(pair_t *pair)
{
    uint8_t bytes[100000];
    tmsg_message_t *message;
    tmsg_request_t *sent;
    tmsg_tensor_t tensor;

    memset(bytes, 7, sizeof(bytes));
    sent = send_map(pair->to_a, map_of(bytes, sizeof(bytes), "next"), 0);
    message = pair_take(pair, &pair->a);
    must(tmsg_map_find(tmsg_message_map(message), "next", &tensor));
    cr_expect_arr_eq(tensor.data, bytes, sizeof(bytes));
    must(pair_finish(pair, sent));
    tmsg_message_destroy(message);
}

static void check_words(const tmsg_request_t *request, const char *words)
{
    cr_expect(strstr(tmsg_request_error(request), words) != NULL, "%s",
              tmsg_request_error(request));
}

static void send_with_gap(pair_t *pair, const pages_t *pages, size_t bytes,
                          size_t gap, uint32_t flags,
                          const tmsg_send_params_t *params)
{
    tmsg_send_params_t how = {0};
    tmsg_map_t *map = map_of(pages->bytes, bytes, "frame");
    tmsg_request_t *sent;

    if (params != NULL) {
        how = *params;
    }
    how.field_mask |= TMSG_SEND_PARAM_FLAGS;
    how.flags |= flags;
    protect(pages, gap, 1, PROT_NONE);
    must(tmsg_endpoint_send(pair->to_a, map, &how, &sent));
    tmsg_map_destroy(map);
    must_be(pair_wait(pair, sent), TMSG_ERR_IO);
    check_words(sent, "tensor 'frame': its memory cannot be read");
    tmsg_request_destroy(sent);
    protect(pages, gap, 1, PROT_READ | PROT_WRITE);
    next_is_right(pair);
}

static void not_all_readable(link_t link)
{
    static const size_t sizes[] = {33000, 65600, 300000, 520000};
    pages_t pages = pages_make();
    pair_t pair;

    open_reading(&pair, link);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        send_with_gap(&pair, &pages, sizes[i], 8192, 0, NULL);
        send_with_gap(&pair, &pages, sizes[i], sizes[i] - 1, TMSG_SEND_ACKED,
                      NULL);
        send_with_gap(&pair, &pages, sizes[i], 0, 0, NULL);
    }
    pair_close(&pair);
    pages_free(&pages);
}

Test(cma, fails_a_send_that_cannot_be_read) { not_all_readable(LINK_SHM); }
Test(cma, fails_a_send_that_cannot_be_read_unix)
{
    not_all_readable(LINK_UNIX);
}
Test(cma, fails_a_send_that_cannot_be_read_blob)
{
    not_all_readable(LINK_BLOB);
}

/* Parts, which the receiver reads one after the other. */
Test(cma, fails_a_part_that_cannot_be_read)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_WAY,
                                       .way = TMSG_WAY_PARTS};
    pages_t pages = pages_make();
    pair_t pair;

    open_reading(&pair, LINK_SHM);
    send_with_gap(&pair, &pages, 3000000, 2999999, 0, &params);
    send_with_gap(&pair, &pages, 3000000, 300000, TMSG_SEND_ACKED, &params);
    send_with_gap(&pair, &pages, 3000000, 0, 0, &params);
    pair_close(&pair);
    pages_free(&pages);
}
