/* SPDX-License-Identifier: BSD-3-Clause */
/* The receiver reads payloads out of the sender's memory by itself: a payload
 * arrives whole or not at all, never with other bytes in place of those that
 * cannot be read. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "am/endpoint/endpoint.h"
#include "support/peers.h"

enum { MOST = 16 << 20 };

/* What the kernel is made to do with reads of more than the lease's word. */
static struct {
    int error;      /* not 0: they fail so, */
    unsigned times; /* as often */
    bool feigned;   /* only the lease is copied, from behind the rest */
    unsigned calls;
    int word_error; /* not 0: reads of the lease's word alone fail so */
} kernel;

typedef ssize_t (*readv_fn)(pid_t, const struct iovec *, unsigned long,
                            const struct iovec *, unsigned long, unsigned long);

/* Linux ends a call at so many bytes. */
static ssize_t feign(readv_fn real, pid_t pid, const struct iovec *here,
                     unsigned long count, const struct iovec *there)
{
    const size_t most = 0x7ffff000;
    size_t bytes = 0;

    for (unsigned long i = 0; i + 1 < count; i++) {
        bytes += here[i].iov_len;
    }
    must_eq(there[0].iov_len, bytes);
    if (bytes >= most) {
        return (ssize_t)most;
    }
    return (ssize_t)bytes + real(pid, &here[count - 1], 1, &there[1], 1, 0);
}

ssize_t process_vm_readv(pid_t pid, const struct iovec *here,
                         unsigned long count, const struct iovec *there,
                         unsigned long there_count, unsigned long flags)
{
    readv_fn real;

    *(void **)&real = dlsym(RTLD_NEXT, "process_vm_readv");
    if (kernel.word_error != 0 && there_count == 1 &&
        there->iov_len == TMSG_LEASE_WORD_BYTES) {
        errno = kernel.word_error;
        return -1;
    }
    if (there_count < 2) {
        return real(pid, here, count, there, there_count, flags);
    }
    kernel.calls++;
    if (kernel.times > 0) {
        kernel.times--;
        errno = kernel.error;
        return -1;
    }
    return kernel.feigned ? feign(real, pid, here, count, there)
                          : real(pid, here, count, there, there_count, flags);
}

/* Memory of which some pages can be made unreadable. */
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

/* The next message arrives, and is the only one: the one before it failed. */
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

/* Fragments, which the receiver reads one after the other. */
Test(cma, fails_a_fragment_that_cannot_be_read)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_WAY,
                                       .way = TMSG_WAY_FRAGMENTS};
    pages_t pages = pages_make();
    pair_t pair;

    open_reading(&pair, LINK_SHM);
    send_with_gap(&pair, &pages, 3000000, 2999999, 0, &params);
    send_with_gap(&pair, &pages, 3000000, 300000, TMSG_SEND_ACKED, &params);
    send_with_gap(&pair, &pages, 3000000, 0, 0, &params);
    pair_close(&pair);
    pages_free(&pages);
}

/* More than one call of the kernel's reads, in one piece. */
Test(cma, reads_more_than_one_call_can)
{
    const size_t bytes = ((size_t)2 << 30) + 12345;
    const uint64_t most = (uint64_t)3 << 30;
    const side_options_t options = {
        .limits = {.field_mask =
                       TMSG_LIMIT_HELD_BYTES | TMSG_LIMIT_MESSAGE_BYTES,
                   .held_bytes = most,
                   .message_bytes = most}};
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_WAY,
                                       .way = TMSG_WAY_SCATTER};
    uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    tmsg_request_t *sent;
    tmsg_map_t *map;
    pair_t pair;

    must_true(memory != MAP_FAILED);
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    pair_await(&pair, endpoint_is_read, pair.to_a, "a peer that reads");
    kernel.feigned = true; /* nobody touches so much memory */
    map = map_of(memory, bytes, "large");
    must(tmsg_endpoint_send(pair.to_a, map, &params, &sent));
    tmsg_map_destroy(map);
    must(pair_finish(&pair, sent));
    tmsg_message_destroy(pair_take(&pair, &pair.a));
    must_true(kernel.calls > 1);
    pair_close(&pair);
    munmap(memory, bytes);
}

/* The kernel fails for another reason than a tensor's memory, and only once. */
static void fails_once(int error)
{
    uint8_t bytes[100000] = {1};
    tmsg_request_t *sent;
    pair_t pair;

    open_reading(&pair, LINK_SHM);
    kernel.error = error;
    kernel.times = 1;
    sent = send_map(pair.to_a, map_of(bytes, sizeof(bytes), "frame"), 0);
    must_be(pair_wait(&pair, sent), TMSG_ERR_PEER_LOST);
    tmsg_request_destroy(sent);
    next_is_right(&pair);
    pair_close(&pair);
}

Test(cma, fails_a_send_that_may_not_be_read) { fails_once(EPERM); }
Test(cma, fails_a_send_for_which_the_kernel_lacks_memory)
{
    fails_once(ENOMEM);
}

/* It says nothing of the peer if the kernel cannot read the word now. */
Test(cma, is_not_begun_where_the_kernel_fails)
{
    pair_t pair;

    kernel.word_error = ENOMEM;
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    kernel.word_error = 0;
    next_is_right(&pair);
    must_true(!endpoint_is_read(pair.to_a));
    pair_close(&pair);
}

static void count_release(void *arg) { ++*(unsigned *)arg; }

/* A payload that the peer has not looked at yet, in whole or in fragments. */
static tmsg_request_t *lend(pair_t *pair, uint8_t *bytes, size_t count,
                            tmsg_way_kind_t way, unsigned *releases)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_WAY |
                                                     TMSG_SEND_PARAM_ON_RELEASE,
                                       .way = way,
                                       .on_release = count_release,
                                       .on_release_arg = releases};
    tmsg_map_t *map = map_of(bytes, count, "frame");
    tmsg_request_t *sent;

    must(tmsg_endpoint_send(pair->to_a, map, &params, &sent));
    tmsg_map_destroy(map);
    must_true(pair->to_a->cma.lent.count > 0);
    must_eq(*releases, 0);
    return sent;
}

static void destroy_endpoint(pair_t *pair)
{
    tmsg_endpoint_destroy(pair->to_a);
    pair->to_a = NULL;
    for (int i = 0; i < 1000; i++) {
        tmsg_worker_progress(pair->b.worker);
    }
}

static void destroy_worker(pair_t *pair)
{
    tmsg_endpoint_destroy(pair->to_a);
    pair->to_a = NULL;
    side_close(&pair->b);
}

static void lose_peer(pair_t *pair)
{
    tmsg_endpoint_destroy(pair->to_b);
    pair->to_b = NULL;
    side_end_of(&pair->b, pair->to_a);
    for (int i = 0; i < 1000; i++) {
        tmsg_worker_progress(pair->b.worker);
    }
}

static void gives_back(void (*end)(pair_t *pair))
{
    static const tmsg_way_kind_t ways[] = {TMSG_WAY_SCATTER,
                                           TMSG_WAY_FRAGMENTS};
    static uint8_t bytes[3000000];

    for (size_t i = 0; i < 2; i++) {
        unsigned releases = 0;
        tmsg_request_t *sent;
        pair_t pair;

        open_reading(&pair, LINK_SHM);
        sent = lend(&pair, bytes, sizeof(bytes), ways[i], &releases);
        end(&pair);
        must_eq(releases, 1);
        must_true(tmsg_request_test(sent) < 0);
        tmsg_request_destroy(sent);
        pair_drop(&pair);
    }
}

Test(cma, gives_memory_back_with_its_endpoint) { gives_back(destroy_endpoint); }
Test(cma, gives_memory_back_with_its_peer) { gives_back(lose_peer); }
Test(cma, gives_memory_back_with_its_worker) { gives_back(destroy_worker); }

static bool is_free(void *endpoint)
{
    return ((tmsg_endpoint_t *)endpoint)->cma.lent.count == 0;
}

/* The memory comes back when the peer has heard of the cancel; it may have read
 * it by then. */
Test(cma, gives_memory_back_that_was_given_up)
{
    uint8_t bytes[100000] = {1};
    unsigned releases = 0;
    tmsg_request_t *sent;
    pair_t pair;

    open_reading(&pair, LINK_SHM);
    sent = lend(&pair, bytes, sizeof(bytes), TMSG_WAY_SCATTER, &releases);
    must_be(tmsg_request_cancel(sent), TMSG_CANCEL_PENDING);
    must_eq(releases, 0);
    pair_await(&pair, is_free, pair.to_a, "memory given back");
    tmsg_worker_progress(pair.b.worker);
    must_eq(releases, 1);
    tmsg_request_destroy(sent);
    pair_drop(&pair);
}

/* The head is unreadable, beside a large tensor whose fragments nobody asks for
 * any more. */
static void head_with_gap(tmsg_way_kind_t way)
{
    enum { SMALL = 20000, LARGE = 3000000 };
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_WAY,
                                       .way = way};
    const int64_t shape[] = {LARGE};
    pages_t pages = pages_make();
    const tmsg_tensor_t large = {pages.bytes + (1 << 20),
                                 {TMSG_DEVICE_CPU, 0},
                                 {TMSG_DTYPE_UINT, 8, 1},
                                 1,
                                 shape,
                                 NULL};
    tmsg_map_t *map = map_of(pages.bytes, SMALL, "frame");
    tmsg_request_t *sent;
    pair_t pair;

    open_reading(&pair, LINK_SHM);
    must(tmsg_map_add(map, "large", &large, NULL));
    protect(&pages, 8192, 1, PROT_NONE);
    must(tmsg_endpoint_send(pair.to_a, map, &params, &sent));
    tmsg_map_destroy(map);
    must_be(pair_wait(&pair, sent), TMSG_ERR_IO);
    check_words(sent, "tensor 'frame': its memory cannot be read");
    tmsg_request_destroy(sent);
    next_is_right(&pair);
    pair_close(&pair);
    pages_free(&pages);
}

Test(cma, fails_a_head_that_cannot_be_read)
{
    head_with_gap(TMSG_WAY_FRAGMENTS);
}

/* The memory to receive into belongs to the receiver's application. */
Test(cma, fails_a_send_into_memory_that_cannot_be_written)
{
    static const size_t sizes[] = {100000, 3000000};
    static const tmsg_way_kind_t ways[] = {TMSG_WAY_SCATTER,
                                           TMSG_WAY_FRAGMENTS};
    static uint8_t bytes[3000000];
    pages_t pages = pages_make();

    for (size_t i = 0; i < 2; i++) {
        tmsg_message_t *message;
        tmsg_request_t *sent;
        tmsg_map_t *into, *map;
        const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_WAY,
                                           .way = ways[i]};
        pair_t pair;

        open_reading(&pair, LINK_SHM);
        into = map_of(pages.bytes, sizes[i], "frame");
        protect(&pages, 8192, 1, PROT_READ);
        map = map_of(bytes, sizes[i], "frame");
        must(tmsg_endpoint_send(pair.to_a, map, &params, &sent));
        tmsg_map_destroy(map);
        must_be(tmsg_endpoint_recv_into(pair.to_b, into, 20, &message),
                TMSG_ERR_TIMED_OUT);
        must_be(pair_wait(&pair, sent), TMSG_ERR_IO);
        check_words(sent, "tensor 'frame': the memory that it is received into "
                          "cannot be written (byte 8192 of ");
        tmsg_request_destroy(sent);
        protect(&pages, 8192, 1, PROT_READ | PROT_WRITE);
        tmsg_map_destroy(into);
        next_is_right(&pair);
        pair_close(&pair);
    }
    pages_free(&pages);
}
