/* SPDX-License-Identifier: BSD-3-Clause */
/* fakes/machine.h - devices with memory, streams and events, and no hardware.
 *
 * Device memory lies in a memfd that is mapped twice: the addresses that are
 * handed out may not be touched by the CPU, which dies of SIGSEGV there; only
 * the copies made here go through the other mapping.
 *
 * Streams are as lazy as may be. Work is done when somebody asks whether it
 * is: a query takes one step, a synchronization all that are needed. What was
 * not put in order by an event then happens in the wrong one, and is noticed:
 * work that touches memory which earlier work on another stream has not got to
 * is a fault, as is what touches freed memory. The first fault stays. */
#ifndef TMSG_TESTS_FAKES_MACHINE_H
#define TMSG_TESTS_FAKES_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKE_DEVICES 4
#define FAKE_DEVICE_BYTES (256ull << 20)

typedef enum {
    FAKE_PLAIN = 1,
    FAKE_POOL,
    FAKE_MAPPED,
    FAKE_MANAGED, /* the CPU may touch this one */
    FAKE_PINNED   /* host memory that was registered */
} fake_kind_t;

typedef struct {
    uintptr_t base;
    size_t bytes;
    int device;
    fake_kind_t kind;
    void *owner; /* for the driver that is played */
} fake_block_t;

typedef struct fake_stream fake_stream_t;
typedef struct fake_event fake_event_t;

/* All that follows is safe from any thread. */

/* 0: no room. The memory begins at a multiple of `alignment`. With a stream it
 * may be used when the stream gets there. */
uintptr_t fake_alloc(int device, size_t bytes, size_t alignment,
                     fake_kind_t kind, void *owner, fake_stream_t *stream);
/* Waits for the device without a stream. false: no such block. */
bool fake_free(uintptr_t base, fake_stream_t *stream);
/* Host memory; false: some of it is registered already, or none is. */
bool fake_pin(uintptr_t base, size_t bytes);
bool fake_unpin(uintptr_t base);
/* The block that `address` lies in. */
bool fake_find(uintptr_t address, fake_block_t *block_p);
/* Blocks that were given and not freed, registered ones among them. */
int fake_blocks(void);
/* Lets a test see and fill device memory. */
void fake_peek(void *to, uintptr_t from, size_t bytes);
void fake_poke(uintptr_t to, const void *from, size_t bytes);

/* A `legacy` stream waits for those of its device that are not `apart`, and
 * they for it. */
fake_stream_t *fake_stream_new(int device, bool legacy, bool apart,
                               void *owner);
int fake_stream_device(const fake_stream_t *stream);
void *fake_stream_owner(const fake_stream_t *stream);
void fake_stream_free(fake_stream_t *stream); /* when its work is done */
bool fake_stream_freed(const fake_stream_t *stream);

void fake_copy(fake_stream_t *stream, uintptr_t to, uintptr_t from,
               size_t bytes);
/* A kernel that waits for the program: nothing behind it happens before
 * fake_unblock(). To wait for it is a fault. */
void fake_block(fake_stream_t *stream);
void fake_unblock(fake_stream_t *stream);
/* All that the stream holds, now. */
void fake_synchronize(fake_stream_t *stream);
/* All that any stream holds, but what waits for the program. */
void fake_finish(void);

/* Ends all streams, events and blocks of a device. */
void fake_reset(int device);

fake_event_t *fake_event_new(int device, void *owner);
int fake_event_device(const fake_event_t *event);
void *fake_event_owner(const fake_event_t *event);
void fake_event_free(fake_event_t *event);
bool fake_event_freed(const fake_event_t *event);
void fake_event_record(fake_event_t *event, fake_stream_t *stream);
void fake_event_wait(fake_event_t *event, fake_stream_t *stream);
/* Whether it is done; takes one step of its stream if not. */
bool fake_event_step(fake_event_t *event);
int fake_events(void); /* that were not freed */

/* Whether the CPU can neither read nor write there: the kernel says so for the
 * process, which would die of trying. */
bool fake_untouchable(const void *data);

/* What went wrong, or NULL; fake_fault_set() keeps the first. */
const char *fake_fault(void);
void fake_fault_set(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
void fake_fault_clear(void);

#endif
