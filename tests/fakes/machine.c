/* SPDX-License-Identifier: BSD-3-Clause */
#include "fakes/machine.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define PAGE 4096u
#define PAGES (FAKE_DEVICE_BYTES / PAGE)
#define PINS 4096

typedef enum { COPY, RECORD, WAIT, BORN, FREED, BLOCK } op_kind_t;

typedef struct {
    op_kind_t kind;
    uint64_t order; /* in which all work was given */
    uintptr_t to, from;
    size_t bytes;
    fake_event_t *event;
    uint64_t ticket;      /* the order of the record that is waited for */
    fake_stream_t *other; /* and its stream */
} op_t;

struct fake_stream {
    int device;
    void *owner; /* for the driver that is played */
    bool legacy, apart, freed, unblocked, running;
    op_t *ops;
    size_t first, count, room;
    fake_stream_t *next;
};

struct fake_event {
    int device;
    void *owner;
    bool freed;
    uint64_t ticket, done; /* of the last record given, and done */
    fake_stream_t *stream; /* of the last one given */
    fake_event_t *next;
};

typedef struct {
    fake_block_t block;
    bool used, born, dying;
} slot_t;

static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static char *face[FAKE_DEVICES], *inside[FAKE_DEVICES];
static slot_t *slots;
static size_t room, lowest; /* of slots; none below `lowest` is free */
static slot_t pins[PINS];   /* of host memory, which has no pages here */
static size_t pin_tops;     /* those behind were never used */
static uint32_t *pages[FAKE_DEVICES];    /* 1 + the slot that each belongs to */
static size_t lowest_page[FAKE_DEVICES]; /* none below is free */
static fake_stream_t *streams;
static fake_event_t *events;
static uint64_t orders;
static char fault[256];

static void lock(void) { pthread_mutex_lock(&mutex); }
static void unlock(void) { pthread_mutex_unlock(&mutex); }

const char *fake_fault(void) { return fault[0] == '\0' ? NULL : fault; }
void fake_fault_clear(void) { fault[0] = '\0'; }

void fake_fault_set(const char *format, ...)
{
    va_list args;

    lock();
    if (fault[0] == '\0') {
        va_start(args, format);
        vsnprintf(fault, sizeof(fault), format, args);
        va_end(args);
    }
    unlock();
}

bool fake_untouchable(const void *data)
{
    int ends[2];
    bool neither;

    if (pipe(ends) != 0) {
        abort();
    }
    neither = write(ends[1], data, 1) == -1 && errno == EFAULT &&
              write(ends[1], "x", 1) == 1 &&
              read(ends[0], (void *)(uintptr_t)data, 1) == -1 &&
              errno == EFAULT;
    close(ends[0]);
    close(ends[1]);
    return neither;
}

static void *checked(void *data)
{
    if (data == NULL || data == MAP_FAILED) {
        abort();
    }
    return data;
}

/* Where a test fails allocations in turn, it is not ours that it means. */
static void *resized(void *data, size_t bytes)
{
    void *more = realloc(data, bytes);

    return more != NULL ? more : checked(realloc(data, bytes));
}

static void *made(size_t bytes)
{
    return memset(resized(NULL, bytes), 0, bytes);
}

static void map_device(int device)
{
    int fd = memfd_create("fake-device", MFD_CLOEXEC);

    if (fd < 0 || ftruncate(fd, FAKE_DEVICE_BYTES) != 0) {
        abort();
    }
    face[device] =
        checked(mmap(NULL, FAKE_DEVICE_BYTES, PROT_NONE, MAP_SHARED, fd, 0));
    inside[device] = checked(mmap(NULL, FAKE_DEVICE_BYTES,
                                  PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    close(fd);
    pages[device] = made(PAGES * sizeof(*pages[device]));
}

static int device_at(uintptr_t address)
{
    for (int i = 0; i < FAKE_DEVICES; i++) {
        if (face[i] != NULL &&
            address - (uintptr_t)face[i] < FAKE_DEVICE_BYTES) {
            return i;
        }
    }
    return -1;
}

/* Where the bytes at an address can be touched. */
static void *view(uintptr_t address)
{
    int device = device_at(address);

    return device < 0 ? (void *)(uintptr_t)address
                      : inside[device] + (address - (uintptr_t)face[device]);
}

static bool is_in(const slot_t *slot, uintptr_t address)
{
    const fake_block_t *block = &slot->block;

    return slot->used &&
           address - block->base < (block->bytes > 0 ? block->bytes : 1);
}

static slot_t *slot_at(uintptr_t address)
{
    int device = device_at(address);
    uint32_t number;

    for (size_t i = 0; device < 0 && i < pin_tops; i++) {
        if (is_in(&pins[i], address)) {
            return &pins[i];
        }
    }
    if (device < 0) {
        return NULL;
    }
    number = pages[device][(address - (uintptr_t)face[device]) / PAGE];
    return number > 0 && is_in(&slots[number - 1], address) ? &slots[number - 1]
                                                            : NULL;
}

static slot_t *free_slot(void)
{
    while (lowest < room && slots[lowest].used) {
        lowest++;
    }
    if (lowest == room) {
        room = room * 2 + 64;
        slots = resized(slots, room * sizeof(*slots));
        memset(slots + lowest, 0, (room - lowest) * sizeof(*slots));
    }
    return &slots[lowest];
}

static slot_t *free_pin(void)
{
    for (size_t i = 0; i < PINS; i++) {
        if (!pins[i].used) {
            pin_tops = i < pin_tops ? pin_tops : i + 1;
            return &pins[i];
        }
    }
    abort();
}

/* Behind each block there is a byte at least that is nobody's. */
static size_t pages_of(size_t bytes) { return bytes / PAGE + 1; }

/* The first page from `page` on that begins at a multiple of so many pages. */
static size_t aligned(int device, size_t page, size_t multiple)
{
    size_t first = (uintptr_t)face[device] / PAGE;

    return (first + page + multiple - 1) / multiple * multiple - first;
}

/* The lowest place that is free, at a page of its own. */
static uintptr_t place(int device, size_t bytes, size_t alignment)
{
    size_t count = pages_of(bytes), multiple = alignment / PAGE, n;
    size_t *lowest_p = &lowest_page[device];

    while (*lowest_p < PAGES && pages[device][*lowest_p] != 0) {
        ++*lowest_p;
    }
    for (size_t at = aligned(device, *lowest_p, multiple); at + count <= PAGES;
         at = aligned(device, at + n + 1, multiple)) {
        for (n = 0; n < count && pages[device][at + n] == 0; n++) {
        }
        if (n == count) {
            return (uintptr_t)face[device] + at * PAGE;
        }
    }
    return 0;
}

static void own_pages(const fake_block_t *block, uint32_t number)
{
    size_t first = (block->base - (uintptr_t)face[block->device]) / PAGE;
    size_t count = pages_of(block->bytes);

    for (size_t i = 0; i < count; i++) {
        pages[block->device][first + i] = number;
    }
    if (number == 0 && first < lowest_page[block->device]) {
        lowest_page[block->device] = first;
    }
}

static void push(fake_stream_t *stream, op_t op)
{
    if (stream->first > 0 && stream->count == 0) {
        stream->first = 0;
    }
    if (stream->first + stream->count == stream->room) {
        stream->room = stream->room * 2 + 16;
        stream->ops = resized(stream->ops, stream->room * sizeof(*stream->ops));
    }
    op.order = ++orders;
    stream->ops[stream->first + stream->count++] = op;
}

uintptr_t fake_alloc(int device, size_t bytes, size_t alignment,
                     fake_kind_t kind, void *owner, fake_stream_t *stream)
{
    uintptr_t base;

    lock();
    if (face[device] == NULL) {
        map_device(device);
    }
    base = place(device, bytes, alignment < PAGE ? PAGE : alignment);
    if (base != 0) {
        slot_t *slot = free_slot();

        *slot = (slot_t){{base, bytes, device, kind, owner}, true, true, false};
        own_pages(&slot->block, (uint32_t)(slot - slots) + 1);
        memset(view(base), 0xa5, bytes);
        if (kind == FAKE_MANAGED) {
            mprotect(face[device] + (base - (uintptr_t)face[device]), bytes,
                     PROT_READ | PROT_WRITE);
        }
        if (stream != NULL) {
            slot->born = false;
            push(stream, (op_t){.kind = BORN, .to = base, .bytes = bytes});
        }
    }
    unlock();
    return base;
}

static void end_block(slot_t *slot)
{
    const fake_block_t *block = &slot->block;

    if (block->kind == FAKE_MANAGED) {
        mprotect(face[block->device] +
                     (block->base - (uintptr_t)face[block->device]),
                 block->bytes, PROT_NONE);
    }
    slot->used = false;
    if (block->kind != FAKE_PINNED) {
        memset(view(block->base), 0x5a, block->bytes);
        own_pages(block, 0);
        lowest =
            (size_t)(slot - slots) < lowest ? (size_t)(slot - slots) : lowest;
    }
}

static bool run_until(fake_stream_t *stream, uint64_t order);

/* Waits for all that a stream holds. The library's thread for such waits does
 * so (memory/aside.h), and another one has a deadlock. */
static void synchronize_to_free(fake_stream_t *stream)
{
    char name[16] = "";

    (void)prctl(PR_GET_NAME, name, 0, 0, 0);
    if (strcmp(name, "tmsg-aside") != 0) {
        fake_synchronize(stream);
        return;
    }
    while (!run_until(stream, UINT64_MAX)) {
        unlock();
        usleep(500);
        lock();
    }
}

bool fake_free(uintptr_t base, fake_stream_t *stream)
{
    slot_t *slot;
    bool found;

    lock();
    slot = slot_at(base);
    found = slot != NULL && slot->block.base == base && !slot->dying &&
            slot->block.kind != FAKE_PINNED;
    if (found && stream != NULL) {
        slot->dying = true;
        push(stream,
             (op_t){.kind = FREED, .to = base, .bytes = slot->block.bytes});
    } else if (found) {
        for (fake_stream_t *each = streams; each != NULL; each = each->next) {
            if (each->device == slot->block.device) {
                synchronize_to_free(each);
            }
        }
        end_block(slot);
    }
    unlock();
    return found;
}

bool fake_pin(uintptr_t base, size_t bytes)
{
    bool taken;

    lock();
    taken = device_at(base) >= 0;
    for (size_t i = 0; i < pin_tops; i++) {
        const fake_block_t *block = &pins[i].block;

        taken |= pins[i].used && block->base < base + bytes &&
                 base < block->base + block->bytes;
    }
    if (!taken) {
        *free_pin() =
            (slot_t){{base, bytes, -1, FAKE_PINNED, NULL}, true, true, false};
    }
    unlock();
    return !taken;
}

bool fake_unpin(uintptr_t base)
{
    slot_t *slot;
    bool found;

    lock();
    slot = slot_at(base);
    found = slot != NULL && slot->block.base == base &&
            slot->block.kind == FAKE_PINNED;
    if (found) {
        end_block(slot);
    }
    unlock();
    return found;
}

bool fake_find(uintptr_t address, fake_block_t *block_p)
{
    slot_t *slot;

    lock();
    slot = slot_at(address);
    if (slot != NULL) {
        *block_p = slot->block;
    }
    unlock();
    return slot != NULL;
}

int fake_blocks(void)
{
    int count = 0;

    lock();
    for (size_t i = 0; i < room; i++) {
        count += slots[i].used && !slots[i].dying;
    }
    for (size_t i = 0; i < pin_tops; i++) {
        count += pins[i].used;
    }
    unlock();
    return count;
}

void fake_peek(void *to, uintptr_t from, size_t bytes)
{
    memcpy(to, view(from), bytes);
}

void fake_poke(uintptr_t to, const void *from, size_t bytes)
{
    memcpy(view(to), from, bytes);
}

fake_stream_t *fake_stream_new(int device, bool legacy, bool apart, void *owner)
{
    fake_stream_t *stream = made(sizeof(*stream));

    stream->device = device;
    stream->owner = owner;
    stream->legacy = legacy;
    stream->apart = apart;
    lock();
    stream->next = streams;
    streams = stream;
    unlock();
    return stream;
}

int fake_stream_device(const fake_stream_t *stream) { return stream->device; }
void *fake_stream_owner(const fake_stream_t *stream) { return stream->owner; }
void fake_stream_free(fake_stream_t *stream) { stream->freed = true; }
bool fake_stream_freed(const fake_stream_t *stream) { return stream->freed; }

void fake_copy(fake_stream_t *stream, uintptr_t to, uintptr_t from,
               size_t bytes)
{
    lock();
    push(stream, (op_t){.kind = COPY, .to = to, .from = from, .bytes = bytes});
    unlock();
}

void fake_block(fake_stream_t *stream)
{
    lock();
    push(stream, (op_t){.kind = BLOCK});
    unlock();
}

void fake_unblock(fake_stream_t *stream) { stream->unblocked = true; }

static bool overlap(uintptr_t a, size_t a_bytes, uintptr_t b, size_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

/* Whether two pieces of work may not change places. */
static bool conflict(const op_t *a, const op_t *b)
{
    bool a_moves = a->kind == COPY, b_moves = b->kind == COPY;

    if (a->bytes == 0 || b->bytes == 0) {
        return false; /* events, mostly */
    }
    return overlap(a->to, a->bytes, b->to, b->bytes) ||
           (b_moves && overlap(a->to, a->bytes, b->from, b->bytes)) ||
           (a_moves && overlap(a->from, a->bytes, b->to, b->bytes));
}

static void check_order(const fake_stream_t *stream, const op_t *op)
{
    for (fake_stream_t *other = streams; other != NULL; other = other->next) {
        for (size_t i = 0; other != stream && i < other->count; i++) {
            const op_t *earlier = &other->ops[other->first + i];

            if (earlier->order < op->order && conflict(earlier, op)) {
                fake_fault_set("unordered: work %llu touches what work %llu "
                               "of another stream has not got to",
                               (unsigned long long)op->order,
                               (unsigned long long)earlier->order);
            }
        }
    }
}

static bool touchable(uintptr_t at, size_t bytes)
{
    const slot_t *slot;

    if (device_at(at) < 0 || bytes == 0) {
        return true; /* the host's is the sanitizer's affair */
    }
    slot = slot_at(at);
    if (slot == NULL || !slot->born ||
        at + bytes > slot->block.base + slot->block.bytes) {
        fake_fault_set("memory at %#llx is not there, or not any more",
                       (unsigned long long)at);
        return false;
    }
    return true;
}

/* Legacy streams and the others keep the order in which work was given. */
static bool run_legacy(fake_stream_t *stream, uint64_t order)
{
    bool ok = true;

    for (fake_stream_t *other = streams; other != NULL && ok;
         other = other->next) {
        if (other != stream && other->device == stream->device &&
            !other->apart && !stream->apart &&
            other->legacy != stream->legacy) {
            ok = run_until(other, order - 1);
        }
    }
    return ok;
}

/* false: it cannot go on. */
static bool run_op(fake_stream_t *stream, const op_t *op)
{
    slot_t *slot;

    check_order(stream, op);
    switch (op->kind) {
    case COPY:
        if (touchable(op->to, op->bytes) && touchable(op->from, op->bytes)) {
            memmove(view(op->to), view(op->from), op->bytes);
        }
        return true;
    case RECORD:
        if (op->event->done < op->ticket) {
            op->event->done = op->ticket;
        }
        return true;
    case WAIT:
        return op->other == NULL || run_until(op->other, op->ticket);
    case BORN:
        slot_at(op->to)->born = true;
        return true;
    case FREED:
        slot = slot_at(op->to);
        end_block(slot);
        return true;
    case BLOCK:
        return stream->unblocked;
    }
    return true;
}

static bool step(fake_stream_t *stream)
{
    op_t op = stream->ops[stream->first];
    bool ok;

    if (stream->running) {
        return false;
    }
    stream->running = true;
    ok = run_legacy(stream, op.order) && run_op(stream, &op);
    stream->running = false;
    if (ok) {
        stream->first++;
        stream->count--;
    }
    return ok;
}

static bool run_until(fake_stream_t *stream, uint64_t order)
{
    while (stream->count > 0 && stream->ops[stream->first].order <= order) {
        if (!step(stream)) {
            return false;
        }
    }
    return true;
}

void fake_synchronize(fake_stream_t *stream)
{
    lock();
    if (!run_until(stream, UINT64_MAX)) {
        fake_fault_set("deadlock: waits for work that waits for the program");
    }
    unlock();
}

void fake_finish(void)
{
    lock();
    for (fake_stream_t *each = streams; each != NULL; each = each->next) {
        (void)run_until(each, UINT64_MAX);
    }
    unlock();
}

void fake_reset(int device)
{
    lock();
    for (fake_stream_t *each = streams; each != NULL; each = each->next) {
        if (each->device == device) {
            each->freed = true;
            each->count = 0;
        }
    }
    for (fake_event_t *each = events; each != NULL; each = each->next) {
        each->freed = each->freed || each->device == device;
    }
    for (size_t i = 0; i < room; i++) {
        if (slots[i].used && slots[i].block.device == device) {
            end_block(&slots[i]);
        }
    }
    unlock();
}

fake_event_t *fake_event_new(int device, void *owner)
{
    fake_event_t *event = made(sizeof(*event));

    event->device = device;
    event->owner = owner;
    lock();
    event->next = events;
    events = event;
    unlock();
    return event;
}

int fake_event_device(const fake_event_t *event) { return event->device; }
void *fake_event_owner(const fake_event_t *event) { return event->owner; }
void fake_event_free(fake_event_t *event) { event->freed = true; }
bool fake_event_freed(const fake_event_t *event) { return event->freed; }

int fake_events(void)
{
    int count = 0;

    lock();
    for (fake_event_t *event = events; event != NULL; event = event->next) {
        count += !event->freed;
    }
    unlock();
    return count;
}

void fake_event_record(fake_event_t *event, fake_stream_t *stream)
{
    lock();
    event->ticket = orders + 1;
    event->stream = stream;
    push(stream,
         (op_t){.kind = RECORD, .event = event, .ticket = event->ticket});
    unlock();
}

void fake_event_wait(fake_event_t *event, fake_stream_t *stream)
{
    lock();
    push(stream, (op_t){.kind = WAIT,
                        .event = event,
                        .ticket = event->ticket,
                        .other = event->stream});
    unlock();
}

bool fake_event_step(fake_event_t *event)
{
    bool done;

    lock();
    done = event->done >= event->ticket;
    if (!done) {
        step(event->stream);
    }
    unlock();
    return done;
}
