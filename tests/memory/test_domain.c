/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "memory/domain.h"
#include "support/must.h"
#include "support/simulated_device.h"

static const tmsg_stream_t none;

static void refused(tmsg_domain_t table, const char *why)
{
    must_be(tmsg_domain_register(&table), TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), why);
}

static tmsg_status_t pin(void *arg, void *host, uint64_t bytes)
{
    (void)arg;
    (void)host;
    (void)bytes;
    return TMSG_OK;
}

static void unpin(void *arg, void *host, uint64_t bytes)
{
    (void)arg;
    (void)host;
    (void)bytes;
}

Test(domain, that_lacks_a_function_is_refused)
{
    tmsg_domain_t table;
    const tmsg_domain_t *found;

#define WITHOUT(field, why)                                                    \
    table = accelerator;                                                       \
    table.field = 0;                                                           \
    refused(table, why)

    must_be(tmsg_domain_register(NULL), TMSG_ERR_INVALID_PARAM);
    WITHOUT(table_bytes, "table_bytes");
    table.table_bytes = offsetof(tmsg_domain_t, copy_within);
    refused(table, "table_bytes");
    WITHOUT(name, "no name");
    table.name = "";
    refused(table, "no name");
    WITHOUT(holds, "domain 'accelerator': the table has no holds()");
    WITHOUT(alloc, "alloc()");
    WITHOUT(free, "free()");
    WITHOUT(copy_in, "copy_in()");
    WITHOUT(copy_out, "copy_out()");
    WITHOUT(copy_within, "copy_within()");
    WITHOUT(event_record, "event functions");
    WITHOUT(event_query, "event functions");
    WITHOUT(event_wait, "event functions");
    WITHOUT(event_free, "event functions");
    table = accelerator;
    table.event_record = NULL;
    table.event_query = NULL;
    table.event_wait = NULL;
    table.event_free = NULL;
    refused(table, "stream() and no events");
    table = accelerator;
    table.unpin = unpin;
    refused(table, "pin() and unpin()");
    table = accelerator;
    table.pin = pin;
    refused(table, "pin() and unpin()");
    must_be(tmsg_domain_find(accelerator_device(0), &found),
            TMSG_ERR_NOT_FOUND);
    must_say(tmsg_error_message(), "device type 12");
}

Test(domain, of_an_application_is_found)
{
    tmsg_domain_t table = accelerator;
    const tmsg_domain_t *found;

    must(tmsg_domain_register(&table));
    memset(&table, 0, sizeof(table)); /* it was copied */
    must(tmsg_domain_find(accelerator_device(1), &found));
    cr_expect_str_eq(found->name, "accelerator");
    cr_expect_eq(found->copy_in, accelerator.copy_in);
    must_be(tmsg_domain_register(&accelerator), TMSG_ERR_ALREADY_EXISTS);
    must_be(tmsg_domain_find(accelerator_device(1), NULL),
            TMSG_ERR_INVALID_PARAM);
    must(tmsg_domain_use(accelerator_device(1))); /* which needs no telling */
    must_be(tmsg_domain_use((tmsg_device_t){99, 0}), TMSG_ERR_NOT_FOUND);
}

Test(domain, of_an_older_application_lacks_the_newer_functions)
{
    tmsg_domain_t table = accelerator;
    const tmsg_domain_t *found;

    table.table_bytes = offsetof(tmsg_domain_t, stream);
    must(tmsg_domain_register(&table));
    must(tmsg_domain_find(accelerator_device(0), &found));
    cr_expect_null(found->stream);
    cr_expect_null(found->event_record);
    cr_expect_null(found->identify);
}

Test(domain, of_a_newer_application_has_what_is_known)
{
    struct {
        tmsg_domain_t known;
        void *later[4];
    } table = {.known = accelerator};
    const tmsg_domain_t *found;

    table.known.table_bytes = sizeof(table);
    must(tmsg_domain_register(&table.known));
    must(tmsg_domain_find(accelerator_device(0), &found));
    cr_expect_eq(found->table_bytes, sizeof(tmsg_domain_t));
}

Test(domain, is_one_of_sixteen)
{
    static char names[17][16];
    tmsg_domain_t table = accelerator;

    for (int i = 0; i < 17; i++) {
        snprintf(names[i], sizeof(names[i]), "d%d", i);
        table.name = names[i];
        must_be(tmsg_domain_register(&table),
                i < 16 ? TMSG_OK : TMSG_ERR_LIMIT_EXCEEDED);
    }
    must_say(tmsg_error_message(), "'d16'");
}

Test(domain, of_the_host_is_a_table_like_the_others)
{
    static const tmsg_device_t pinned = {TMSG_DEVICE_CUDA_HOST, 0};
    const tmsg_stream_t stream = {TMSG_STREAM_CUDA, 1};
    const tmsg_domain_t *host;
    tmsg_domain_t copy;
    void *data;
    char out[6];

    must(tmsg_domain_find((tmsg_device_t){TMSG_DEVICE_CPU, 0}, &host));
    cr_expect_eq(host, &tmsg_domain_host);
    must(tmsg_domain_find(pinned, &host));
    must(host->alloc(host->arg, pinned, 100, 4096, none, &data));
    cr_expect_eq((uintptr_t)data % 4096, 0);
    must(host->copy_in(host->arg, pinned, data, "hello", 6, none));
    must(host->copy_out(host->arg, pinned, out, data, 6, none));
    cr_expect_str_eq(out, "hello");
    must(host->copy_within(host->arg, pinned, NULL, NULL, 0, none));
    must_be(host->copy_in(host->arg, pinned, data, "x", 1, stream),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "kind 1");
    for (uint64_t less = 0; less < 64; less += 21) { /* beyond 2^64 */
        char words[80];

        snprintf(words, sizeof(words), "no memory for %llu bytes of tensors",
                 (unsigned long long)(UINT64_MAX - less));
        must_be(host->alloc(host->arg, pinned, UINT64_MAX - less, 4096, none,
                            &data),
                TMSG_ERR_NO_MEMORY);
        must_say(tmsg_error_message(), words);
    }
    must_be(host->alloc(host->arg, pinned, 1, 1, stream, &data),
            TMSG_ERR_INVALID_PARAM);
    host->free(host->arg, pinned, data, 100, none);
    copy = *host; /* it would pass for one that was registered */
    copy.name = "host2";
    must(tmsg_domain_register(&copy));
}

Test(memory, is_of_the_domain_that_knows_it)
{
    tmsg_memory_t memory;
    void *data;
    int here;

    must(tmsg_domain_register(&accelerator));
    must(
        accelerator.alloc(NULL, accelerator_device(2), 10000, 64, none, &data));
    must(tmsg_memory_query((char *)data + 9999, &memory));
    cr_expect_eq(memory.device.type, ACCELERATOR_DEVICE);
    cr_expect_eq(memory.device.id, 2);
    cr_expect_eq(memory.kind, TMSG_MEMORY_DEVICE);
    cr_expect_eq(memory.base, data);
    cr_expect_eq(memory.bytes, 10000);
    must(tmsg_memory_query(&here, &memory));
    cr_expect_eq(memory.device.type, TMSG_DEVICE_CPU);
    cr_expect_eq(memory.kind, TMSG_MEMORY_HOST);
    cr_expect_null(memory.base);
    must_be(tmsg_memory_query(NULL, &memory), TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_memory_query(&here, NULL), TMSG_ERR_INVALID_PARAM);
    accelerator.free(NULL, accelerator_device(2), data, 10000, none);
}

static tmsg_status_t confused(void *arg, const void *data,
                              tmsg_memory_t *memory_p)
{
    (void)arg;
    (void)data;
    (void)memory_p;
    return tmsg_domain_fail(TMSG_ERR_IO, "the driver is 100 % lost");
}

Test(memory, is_not_guessed_where_a_driver_fails)
{
    tmsg_domain_t table = accelerator;
    tmsg_memory_t memory;
    int here;

    table.classify = confused;
    must(tmsg_domain_register(&table));
    must_be(tmsg_memory_query(&here, &memory), TMSG_ERR_IO);
    cr_expect_str_eq(tmsg_error_message(), "the driver is 100 % lost");
}

static void *device_data(int32_t id, size_t bytes)
{
    void *data;

    must(accelerator.alloc(NULL, accelerator_device(id), bytes, 64, none,
                           &data));
    return data;
}

Test(accelerator, has_memory_that_is_not_the_cpus)
{
    char *data = device_data(0, 10000);

    cr_expect(fake_untouchable(data));
    cr_expect(fake_untouchable(data + 9999));
    cr_expect_not(fake_untouchable(&data));
}

Test(accelerator, copies_in_out_and_between_devices)
{
    static char from[100000], to[100000];
    void *a = device_data(0, sizeof(from)), *b = device_data(1, sizeof(from));

    memset(from, 'x', sizeof(from));
    must(accelerator.copy_in(NULL, accelerator_device(0), a, from, sizeof(from),
                             none));
    must(accelerator.copy_within(NULL, accelerator_device(1), b, a,
                                 sizeof(from), none));
    must(accelerator.copy_out(NULL, accelerator_device(1), to, b, sizeof(to),
                              none));
    cr_expect_arr_eq(from, to, sizeof(to));
    accelerator.free(NULL, accelerator_device(0), a, sizeof(from), none);
    accelerator.free(NULL, accelerator_device(1), b, sizeof(from), none);
    cr_expect_null(fake_fault());
    cr_expect_eq(fake_blocks(), 0);
}

static void finish(void *event)
{
    int turns = 0;
    tmsg_status_t status;

    while ((status = accelerator.event_query(NULL, event)) ==
           TMSG_IN_PROGRESS) {
        must_true(++turns < 100);
    }
    must(status);
    accelerator.event_free(NULL, event);
}

/* One stream fills memory, another reads it. */
static void hand_over(bool ordered, char *out)
{
    static const char text[] = "in order";
    const tmsg_device_t device = accelerator_device(0);
    tmsg_stream_t first = accelerator_stream(0), second = accelerator_stream(0);
    void *data = device_data(0, sizeof(text)), *event, *done;

    must(accelerator.copy_in(NULL, device, data, text, sizeof(text), first));
    must(accelerator.event_record(NULL, device, first, &event));
    if (ordered) {
        must(accelerator.event_wait(NULL, device, event, second));
    }
    accelerator.event_free(NULL, event); /* what waits for it goes on */
    must(accelerator.copy_out(NULL, device, out, data, sizeof(text), second));
    must(accelerator.event_record(NULL, device, second, &done));
    if (ordered) {
        must_be(accelerator.event_query(NULL, done), TMSG_IN_PROGRESS);
        finish(done);
        cr_expect_str_eq(out, text);
    } else {
        while (accelerator.event_query(NULL, done) == TMSG_IN_PROGRESS) {
        }
        must_be(accelerator.event_query(NULL, done), TMSG_ERR_IO);
    }
}

Test(accelerator, keeps_the_order_that_events_make)
{
    char out[9];

    hand_over(true, out);
    cr_expect_null(fake_fault());
}

Test(accelerator, notices_what_is_not_in_order)
{
    char out[9];

    hand_over(false, out);
    must_say(fake_fault(), "unordered");
}

Test(accelerator, waits_for_memory_that_a_stream_gives)
{
    const tmsg_device_t device = accelerator_device(0);
    tmsg_stream_t first = accelerator_stream(0), second = accelerator_stream(0);
    void *data;

    must(accelerator.alloc(NULL, device, 100, 64, first, &data));
    must(accelerator.copy_in(NULL, device, data, "x", 1, first));
    accelerator.free(NULL, device, data, 100, first);
    fake_synchronize(accelerator_inside(first));
    cr_expect_null(fake_fault());
    must(accelerator.alloc(NULL, device, 100, 64, first, &data));
    must(accelerator.copy_in(NULL, device, data, "x", 1, second));
    fake_synchronize(accelerator_inside(second));
    must_say(fake_fault(), "unordered");
}

Test(accelerator, notices_what_is_used_after_it_was_freed)
{
    const tmsg_device_t device = accelerator_device(0);
    void *data = device_data(0, 100);

    accelerator.free(NULL, device, data, 100, none);
    must_be(accelerator.copy_in(NULL, device, data, "x", 1, none), TMSG_ERR_IO);
    must_say(tmsg_error_message(), "not there");
}

Test(accelerator, does_not_wait_for_what_waits_for_the_program)
{
    const tmsg_device_t device = accelerator_device(0);
    tmsg_stream_t stream = accelerator_stream(0);
    void *data = device_data(0, 100), *other = device_data(0, 100), *event;
    char out[2] = "";

    fake_block(accelerator_inside(stream));
    must(accelerator.copy_in(NULL, device, data, "x", 2, stream));
    must(accelerator.event_record(NULL, device, stream, &event));
    /* whatever else is done meanwhile */
    must(accelerator.copy_in(NULL, device, other, "y", 2, none));
    must(accelerator.copy_out(NULL, device, out, other, 2, none));
    cr_expect_str_eq(out, "y");
    accelerator.free(NULL, device, other, 100, none);
    for (int i = 0; i < 5; i++) {
        must_be(accelerator.event_query(NULL, event), TMSG_IN_PROGRESS);
    }
    fake_unblock(accelerator_inside(stream));
    finish(event);
    cr_expect_null(fake_fault());
}

Test(accelerator, refuses_what_it_has_not)
{
    const tmsg_stream_t cuda = {TMSG_STREAM_CUDA, 1};
    tmsg_device_identity_t identity;
    tmsg_stream_t own, again;
    void *data;

    must_be(accelerator.alloc(NULL, accelerator_device(FAKE_DEVICES), 1, 1,
                              none, &data),
            TMSG_ERR_NOT_FOUND);
    must_be(accelerator.alloc(NULL, accelerator_device(0), 1, 1, cuda, &data),
            TMSG_ERR_INVALID_PARAM);
    must_be(accelerator.alloc(NULL, accelerator_device(0), 1ull << 40, 1, none,
                              &data),
            TMSG_ERR_NO_MEMORY);
    must(accelerator.identify(NULL, accelerator_device(1), &identity));
    cr_expect_str_eq(identity.uuid, "ACC-1");
    must_be(accelerator.identify(NULL, accelerator_device(-1), &identity),
            TMSG_ERR_NOT_FOUND);
    must(accelerator.stream(NULL, accelerator_device(1), &own));
    must(accelerator.stream(NULL, accelerator_device(1), &again));
    cr_expect_eq(own.handle, again.handle);
    must_be(accelerator.stream(NULL, accelerator_device(9), &own),
            TMSG_ERR_NOT_FOUND);
}
