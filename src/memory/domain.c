/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory/domain.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "core/error.h"

#define MOST_REGISTERED 16
#define BYTES_UP_TO(field)                                                     \
    (offsetof(tmsg_domain_t, field) + sizeof(((tmsg_domain_t *)NULL)->field))

static const tmsg_domain_t *const built_in[] = {
    &tmsg_domain_host,
    &tmsg_domain_cuda,
};
#define BUILT_IN (sizeof(built_in) / sizeof(built_in[0]))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tmsg_domain_t registered[MOST_REGISTERED];
static atomic_size_t registered_count;

tmsg_status_t tmsg_domain_fail(tmsg_status_t status, const char *words)
{
    return tmsg_error_set(status, "%s", words);
}

static const tmsg_domain_t *domain_at(size_t i)
{
    return i < BUILT_IN ? built_in[i] : &registered[i - BUILT_IN];
}

/* Entries from this count on may not have been written yet. */
static size_t domain_count(void)
{
    return BUILT_IN +
           atomic_load_explicit(&registered_count, memory_order_acquire);
}

const tmsg_domain_t *tmsg_domain_at(size_t i)
{
    return i < domain_count() ? domain_at(i) : NULL;
}

bool tmsg_domain_is_plain(const tmsg_domain_t *domain)
{
    return domain->transport != NULL && strcmp(domain->transport, "host") == 0;
}

tmsg_status_t tmsg_domain_copy(const tmsg_domain_t *domain,
                               tmsg_device_t device, bool out,
                               const tmsg_domain_copy_t *copies, uint64_t count,
                               tmsg_stream_t stream)
{
    tmsg_status_t status = TMSG_OK;

    if (domain->copy_batch != NULL && count > 1) {
        return domain->copy_batch(domain->arg, device, out, copies, count,
                                  stream);
    }
    for (uint64_t i = 0; i < count && status == TMSG_OK; i++) {
        status = (out ? domain->copy_out : domain->copy_in)(
            domain->arg, device, copies[i].to, copies[i].from, copies[i].bytes,
            stream);
    }
    return status;
}

const tmsg_domain_t *tmsg_domain_of(tmsg_device_t device)
{
    size_t count = domain_count();

    for (size_t i = 0; i < count; i++) {
        const tmsg_domain_t *domain = domain_at(i);

        if (domain->holds(domain->arg, device)) {
            return domain;
        }
    }
    return NULL;
}

tmsg_status_t tmsg_domain_find(tmsg_device_t device,
                               const tmsg_domain_t **domain_p)
{
    const tmsg_domain_t *domain = tmsg_domain_of(device);

    if (domain_p == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "domain find: domain_p is NULL");
    }
    if (domain == NULL) {
        return tmsg_error_set(TMSG_ERR_NOT_FOUND,
                              "no domain holds memory of device type %d",
                              device.type);
    }
    *domain_p = domain;
    return TMSG_OK;
}

tmsg_status_t tmsg_domain_use(tmsg_device_t device)
{
    const tmsg_domain_t *domain;
    tmsg_status_t status = tmsg_domain_find(device, &domain);

    if (status != TMSG_OK || domain->use == NULL) {
        return status;
    }
    return domain->use(domain->arg, device);
}

tmsg_status_t tmsg_memory_query(const void *data, tmsg_memory_t *memory_p)
{
    size_t count = domain_count();

    if (data == NULL || memory_p == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "memory query: data or memory_p is NULL");
    }
    for (size_t i = 0; i < count; i++) {
        const tmsg_domain_t *domain = domain_at(i);
        tmsg_status_t status =
            domain->classify == NULL
                ? TMSG_ERR_NOT_FOUND
                : domain->classify(domain->arg, data, memory_p);

        if (status != TMSG_ERR_NOT_FOUND) {
            return status;
        }
    }
    *memory_p =
        (tmsg_memory_t){{TMSG_DEVICE_CPU, 0}, TMSG_MEMORY_HOST, 0, NULL, 0};
    return TMSG_OK;
}

static tmsg_status_t refuse_domain(const tmsg_domain_t *domain,
                                   const char *what)
{
    return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "domain '%s': %s",
                          domain->name, what);
}

static tmsg_status_t check_domain(const tmsg_domain_t *domain)
{
    int events = (domain->event_record != NULL) +
                 (domain->event_query != NULL) + (domain->event_wait != NULL) +
                 (domain->event_free != NULL);

    if (domain->name == NULL || domain->name[0] == '\0') {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "a domain has no name");
    }
    if (domain->holds == NULL) {
        return refuse_domain(domain, "the table has no holds()");
    }
    if (domain->alloc == NULL || domain->free == NULL) {
        return refuse_domain(domain, "the table lacks alloc() or free()");
    }
    if (domain->copy_in == NULL || domain->copy_out == NULL ||
        domain->copy_within == NULL) {
        return refuse_domain(domain, "the table lacks copy_in(), copy_out() or "
                                     "copy_within()");
    }
    if (events != 0 && events != 4) {
        return refuse_domain(
            domain, "the table has some of the event functions, but not all");
    }
    if (events == 0 && domain->stream != NULL) {
        return refuse_domain(domain, "the table has stream() and no events");
    }
    if ((domain->pin == NULL) != (domain->unpin == NULL)) {
        return refuse_domain(domain, "the table has one of pin() and unpin()");
    }
    return TMSG_OK;
}

static tmsg_status_t append_domain(const tmsg_domain_t *domain)
{
    size_t count = domain_count();

    for (size_t i = 0; i < count; i++) {
        if (strcmp(domain_at(i)->name, domain->name) == 0) {
            return tmsg_error_set(TMSG_ERR_ALREADY_EXISTS,
                                  "domain '%s' is registered already",
                                  domain->name);
        }
    }
    if (count - BUILT_IN == MOST_REGISTERED) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "domain '%s': %d other domains are registered, "
                              "and no more are possible",
                              domain->name, MOST_REGISTERED);
    }
    registered[count - BUILT_IN] = *domain;
    atomic_store_explicit(&registered_count, count - BUILT_IN + 1,
                          memory_order_release);
    return TMSG_OK;
}

tmsg_status_t tmsg_domain_register(const tmsg_domain_t *domain)
{
    tmsg_domain_t known = {0};
    tmsg_status_t status;

    if (domain == NULL || domain->table_bytes < BYTES_UP_TO(copy_within)) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "domain register: no table, or table_bytes is "
                              "not its size");
    }
    memcpy(&known, domain,
           domain->table_bytes < sizeof(known) ? (size_t)domain->table_bytes
                                               : sizeof(known));
    known.table_bytes = sizeof(known);
    status = check_domain(&known);
    if (status != TMSG_OK) {
        return status;
    }
    pthread_mutex_lock(&lock);
    status = append_domain(&known);
    pthread_mutex_unlock(&lock);
    return status;
}
