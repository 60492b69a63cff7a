/* SPDX-License-Identifier: BSD-3-Clause */
/* Senders whose memory vanishes while it is sent: pages that become unreadable,
 * and mapped files that are cut, at a random byte and a random moment. A sender
 * may fail or die of it; its receiver never delivers a byte that was not sent.
 * $TMSG_VANISHING "small": some of it. */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/peers.h"
#include "support/soak_progress.h"

enum {
    ROUNDS = 10000, /* over all links */
    SMALL = 240,
    MOST = 16 << 20,
    PAGE = 4096,
    US_MOST = 4000,      /* until the cut */
    COPIED_MOST = 33000, /* bytes that a sender copies itself */
    LOST = 2,            /* exit status: the next sender connects again */
};

/* What a sender is to do. */
typedef struct {
    link_t link;
    uint64_t seed;
    unsigned first, end; /* rounds */
    char url[256];
    int from_host; /* where the blob comes from */
    int to_launcher;
} task_t;

typedef struct {
    uint64_t state;
} dice_t;

static uint64_t roll(dice_t *dice)
{
    uint64_t value = (dice->state += 0x9e3779b97f4a7c15u);

    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
    value = (value ^ value >> 27) * 0x94d049bb133111ebu;
    return value ^ value >> 31;
}

/* As many of each size class. */
static size_t roll_size(dice_t *dice)
{
    size_t class = (size_t)1 << roll(dice) % 25;

    return 1 + (size_t)(roll(dice) % class);
}

/* The memory of a round, and when which of it goes. */
typedef struct {
    uint8_t *bytes;
    size_t length; /* of the mapping */
    size_t cut;
    int fd; /* of a file, or < 0 */
    long after_us;
} memory_t;

static void make_memory(memory_t *memory, size_t bytes, dice_t *dice)
{
    memory->length = (bytes + PAGE - 1) / PAGE * PAGE;
    memory->cut = (size_t)(roll(dice) % bytes);
    memory->after_us = (long)(roll(dice) % US_MOST);
    memory->after_us = roll(dice) % 4 == 0 ? 0 : memory->after_us;
    memory->fd = roll(dice) % 2 == 0 ? memfd_create("vanishing", 0) : -1;
    if (memory->fd >= 0) {
        must_eq(ftruncate(memory->fd, (off_t)memory->length), 0);
    }
    memory->bytes =
        mmap(NULL, memory->length, PROT_READ | PROT_WRITE,
             memory->fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED,
             memory->fd, 0);
    must_true(memory->bytes != MAP_FAILED);
}

/* A file's last page reads as zeros behind its end. */
static void *cut(void *arg)
{
    memory_t *memory = arg;
    size_t from = (memory->cut + PAGE - 1) / PAGE * PAGE;
    struct timespec wait = {0, memory->after_us * 1000};

    nanosleep(&wait, NULL);
    if (memory->fd >= 0) {
        must_eq(ftruncate(memory->fd, (off_t)memory->cut), 0);
    } else if (from < memory->length) {
        must_eq(
            mprotect(memory->bytes + from, memory->length - from, PROT_NONE),
            0);
    }
    return NULL;
}

static void end_memory(memory_t *memory)
{
    munmap(memory->bytes, memory->length);
    if (memory->fd >= 0) {
        close(memory->fd);
    }
}

static tmsg_map_t *map_of(uint8_t *bytes, size_t count, uint8_t fill)
{
    const int64_t shape[] = {(int64_t)count};
    const tmsg_tensor_t tensor = {
        bytes, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "data", &tensor, NULL));
    must(tmsg_map_set_i64(map, "fill", fill));
    return map;
}

/* Its memory is free. */
static bool is_over(void *request)
{
    tmsg_status_t status = tmsg_request_test(request);

    return status != TMSG_IN_PROGRESS && status != TMSG_CANCEL_PENDING;
}

static void send_round(side_t *side, tmsg_endpoint_t *endpoint,
                       const task_t *task, unsigned round)
{
    static const tmsg_way_kind_t ways[] = {TMSG_WAY_AUTO, TMSG_WAY_AUTO,
                                           TMSG_WAY_AUTO, TMSG_WAY_FRAGMENTS};
    dice_t dice = {task->seed * 1000003 + round};
    size_t bytes =
        roll_size(&dice) + (task->link == LINK_BLOB ? COPIED_MOST : 0);
    uint8_t fill = (uint8_t)(1 + round % 250);
    tmsg_send_params_t params = {
        .field_mask = TMSG_SEND_PARAM_FLAGS | TMSG_SEND_PARAM_WAY,
        .flags = roll(&dice) % 2 == 0 ? TMSG_SEND_ACKED : 0,
        .way = ways[roll(&dice) % 4],
    };
    memory_t memory;
    tmsg_request_t *sent;
    tmsg_status_t status;
    pthread_t cutter;
    tmsg_map_t *map;

    make_memory(&memory, bytes, &dice);
    memset(memory.bytes, fill, bytes);
    map = map_of(memory.bytes, bytes, fill);
    must_eq(pthread_create(&cutter, NULL, cut, &memory), 0);
    status = tmsg_endpoint_send(endpoint, map, &params, &sent);
    tmsg_map_destroy(map);
    if (status == TMSG_OK) {
        side_await(side, is_over, sent, "the end of a send");
        status = tmsg_request_test(sent);
        tmsg_request_destroy(sent);
    }
    must_eq(pthread_join(cutter, NULL), 0);
    if (status != TMSG_OK && status != TMSG_ERR_IO) {
        must_be(status, TMSG_ERR_PEER_LOST);
    }
    end_memory(&memory);
    if (status == TMSG_ERR_PEER_LOST) {
        exit(LOST);
    }
}

/* A peer that dies takes a blob with it: by blob nothing is sent that the
 * sender would die of. */
static tmsg_endpoint_t *join(side_t *side, const task_t *task)
{
    tmsg_endpoint_t *endpoint;

    if (task->link != LINK_BLOB) {
        return side_connect(side, task->url);
    }
    endpoint = blob_connect(side, task->from_host);
    side_await(side, endpoint_is_read, endpoint, "a peer that reads");
    return endpoint;
}

/* Says before each round which it is: it may be the last thing that it says. */
static void send_rounds(const task_t *task)
{
    const side_options_t options = {.ucx_config = link_config(task->link)};
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *closed;
    side_t side;

    side_open(&side, &options);
    endpoint = join(&side, task);
    for (unsigned round = task->first; round < task->end; round++) {
        must_eq(write(task->to_launcher, &round, sizeof(round)), sizeof(round));
        send_round(&side, endpoint, task, round);
    }
    must(tmsg_endpoint_close(endpoint, &closed));
    if (side_finish(&side, closed) != TMSG_OK) {
        exit(LOST);
    }
    tmsg_endpoint_destroy(endpoint);
    side_close(&side);
    exit(0);
}

typedef struct {
    uint64_t messages, bytes, wrong;
} counts_t;

static size_t count_same(const uint8_t *bytes, size_t from, size_t end,
                         int64_t value)
{
    size_t at = from;

    while (at < end && bytes[at] == value) {
        at++;
    }
    return at;
}

/* All are `fill`, but that the kernel writes zeros behind the end of a file
 * that is cut, up to the end of that page, which a read may see while the pages
 * behind it are still there. */
static bool is_right(const tmsg_message_t *message)
{
    tmsg_tensor_t tensor;
    const uint8_t *bytes;
    int64_t fill;
    size_t count, at, page_end;

    must(tmsg_map_find(tmsg_message_map(message), "data", &tensor));
    must(tmsg_map_get_i64(tmsg_message_map(message), "fill", &fill));
    bytes = tensor.data;
    count = (size_t)tensor.shape[0];
    at = count_same(bytes, 0, count, fill);
    if (at < count) {
        page_end = (at / PAGE + 1) * PAGE;
        page_end = page_end < count ? page_end : count;
        at = count_same(bytes, at, page_end, 0);
        at = at < page_end ? at : count_same(bytes, at, count, fill);
    }
    if (at < count) {
        fprintf(stderr, "byte %zu of %zu is %u, not %u\n", at, count, bytes[at],
                (unsigned)fill);
    }
    return at == count;
}

static void take(void *arg, tmsg_message_t *message)
{
    counts_t *counts = arg;
    tmsg_tensor_t tensor;

    must(tmsg_map_find(tmsg_message_map(message), "data", &tensor));
    counts->messages++;
    counts->bytes += (uint64_t)tensor.shape[0];
    counts->wrong += !is_right(message);
    tmsg_message_destroy(message);
}

/* Receives until it is told to stop; gives out its blob as often as asked. */
static void host(pipes_t *pipes, void *arg)
{
    const link_t *link = arg;
    counts_t counts = {0};
    const side_options_t options = {
        .drive = DRIVE_THREAD,
        .ucx_config = link_config(*link),
        .worker = {.field_mask = TMSG_WORKER_PARAM_HANDLER,
                   .handler = take,
                   .handler_arg = &counts}};
    char line[256];
    side_t side;

    side_open(&side, &options);
    side_listen_link(&side, *link);
    line_put(pipes->out,
             *link == LINK_BLOB ? "" : tmsg_listener_url(side.listener));
    for (;;) {
        line_get(pipes->in, line, sizeof(line));
        if (strcmp(line, "blob") != 0) {
            break;
        }
        blob_put(pipes->out, side.listener);
    }
    side_close(&side);
    snprintf(line, sizeof(line), "%" PRIu64 " %" PRIu64 " %" PRIu64,
             counts.messages, counts.bytes, counts.wrong);
    line_put(pipes->out, line);
}

/* How the senders ended, by signal; 0: in order, or after a connection that was
 * lost. */
typedef struct {
    unsigned ends[65];
    unsigned senders;
} ends_t;

/* Runs one sender; gives the round that comes next. */
static unsigned run_sender(task_t *task, child_t *receiver, ends_t *ends)
{
    unsigned round = task->first, said;
    int pipes[2], status;
    pid_t pid;

    if (task->link == LINK_BLOB) {
        line_put(receiver->out, "blob");
    }
    must_eq(pipe(pipes), 0);
    fflush(NULL);
    pid = fork();
    must_true(pid >= 0);
    if (pid == 0) {
        close(pipes[0]);
        task->to_launcher = pipes[1];
        send_rounds(task);
    }
    close(pipes[1]);
    while (read(pipes[0], &said, sizeof(said)) == sizeof(said)) {
        round = said;
    }
    close(pipes[0]);
    must_eq(waitpid(pid, &status, 0), pid);
    ends->senders++;
    ends->ends[WIFSIGNALED(status) ? WTERMSIG(status) : 0]++;
    must_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0 ||
              (WEXITSTATUS(status) == LOST && task->link != LINK_TCP));
    return round + 1;
}

static void run(link_t link, unsigned rounds, uint64_t seed)
{
    task_t task = {.link = link, .seed = seed, .end = rounds};
    counts_t counts;
    ends_t ends = {0};
    child_t receiver;
    char line[256];

    child_start(&receiver, host, &link);
    line_get(receiver.in, task.url, sizeof(task.url));
    task.from_host = receiver.in;
    while (task.first < rounds) {
        task.first = run_sender(&task, &receiver, &ends);
    }
    line_put(receiver.out, "stop");
    line_get(receiver.in, line, sizeof(line));
    child_join(&receiver);
    must_eq(sscanf(line, "%" SCNu64 " %" SCNu64 " %" SCNu64, &counts.messages,
                   &counts.bytes, &counts.wrong),
            3);
    printf("%s: %u rounds, %" PRIu64 " messages of %" PRIu64 " bytes, %" PRIu64
           " of them wrong; %u senders, of which died by "
           "SIGSEGV %u, SIGBUS %u, SIGABRT %u\n",
           link_names[link], rounds, counts.messages, counts.bytes,
           counts.wrong, ends.senders, ends.ends[SIGSEGV], ends.ends[SIGBUS],
           ends.ends[SIGABRT]);
    must_eq(counts.wrong, 0);
    must_eq(ends.ends[SIGABRT], 0);
    must_eq(ends.ends[0] + ends.ends[SIGSEGV] + ends.ends[SIGBUS],
            ends.senders);
}

int main(void)
{
    const char *small = getenv("TMSG_VANISHING"), *name = "vanishing";
    unsigned rounds = small != NULL ? SMALL : ROUNDS;
    uint64_t seed = soak_seed();

    setvbuf(stdout, NULL, _IOLBF, 0);
    for (uint64_t slice = soak_place(name); slice < LINKS; slice++) {
        run((link_t)slice, rounds / LINKS, seed + slice);
        soak_keep(name, slice + 1);
    }
    soak_keep(name, 0);
    return 0;
}
