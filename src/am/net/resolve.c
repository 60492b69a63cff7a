/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/net/resolve.h"

#include <errno.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "core/error.h"
#include "core/thread.h"

/* Holds a lookup, which the caller and, while it runs, the lookup's thread
 * share. The last one to let go frees it. */
struct tmsg_resolve {
    pthread_mutex_t lock; /* guards the fields from fd to count */
    int fd;               /* -1 once abandoned */
    unsigned references;
    bool done;
    int error;        /* of getaddrinfo(); 0: it found something */
    int system_errno; /* valid if error is EAI_SYSTEM */
    tmsg_address_t *addresses;
    size_t count;

    /* The fields below do not change after the start. */
    tmsg_resolve_lookup_fn lookup;
    bool passive;
    char service[6];
    char host[];
};

static tmsg_resolve_lookup_fn current_lookup = getaddrinfo;

void tmsg_resolve_set_lookup(tmsg_resolve_lookup_fn lookup)
{
    current_lookup = lookup != NULL ? lookup : getaddrinfo;
}

static void drop_lookup(tmsg_resolve_t *resolve)
{
    bool last;

    pthread_mutex_lock(&resolve->lock);
    last = --resolve->references == 0;
    pthread_mutex_unlock(&resolve->lock);
    if (last) {
        pthread_mutex_destroy(&resolve->lock);
        free(resolve->addresses);
        free(resolve);
    }
}

/* Copies the addresses of `family` to `to`, or with `others` those of all other
 * families. Returns how many they are; with `to` NULL it only counts them. */
static size_t copy_family(tmsg_address_t *to, const struct addrinfo *found,
                          int family, bool others)
{
    size_t count = 0;

    for (; found != NULL; found = found->ai_next) {
        if ((found->ai_family == family) != others &&
            found->ai_addrlen <= sizeof(to->sa)) {
            if (to != NULL) {
                memset(&to[count], 0, sizeof(to[count]));
                memcpy(&to[count].sa, found->ai_addr, found->ai_addrlen);
                to[count].bytes = found->ai_addrlen;
            }
            count++;
        }
    }
    return count;
}

/* Turns what was found into our list. Returns an EAI_* code. */
static int keep_addresses(const struct addrinfo *found, bool passive,
                          tmsg_address_t **addresses_p, size_t *count_p)
{
    int first = passive ? AF_INET : AF_UNSPEC;
    size_t count = copy_family(NULL, found, first, false) +
                   copy_family(NULL, found, first, true);
    tmsg_address_t *addresses;

    if (count == 0) {
        return EAI_NONAME;
    }
    addresses = malloc(count * sizeof(*addresses));
    if (addresses == NULL) {
        return EAI_MEMORY;
    }
    *count_p = copy_family(addresses, found, first, false);
    *count_p += copy_family(addresses + *count_p, found, first, true);
    *addresses_p = addresses;
    return 0;
}

/* Looks up the host and publishes the answer. `flags` are added to the hints.
 * Returns an EAI_* code. */
static int do_lookup(tmsg_resolve_t *resolve, int flags)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = flags | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    tmsg_address_t *addresses = NULL;
    size_t count = 0;
    int system_errno = 0;
    int error;

    if (flags & AI_NUMERICHOST) {
        error = getaddrinfo(resolve->host, resolve->service, &hints, &found);
    } else {
        error =
            resolve->lookup(resolve->host, resolve->service, &hints, &found);
    }
    if (error == EAI_SYSTEM) {
        system_errno = errno;
    }
    if (error == 0) {
        error = keep_addresses(found, resolve->passive, &addresses, &count);
        freeaddrinfo(found);
    }
    if (error == EAI_NONAME && (flags & AI_NUMERICHOST)) {
        /* The host is a name, so there is nothing to publish yet. */
        return error;
    }
    pthread_mutex_lock(&resolve->lock);
    resolve->error = error;
    resolve->system_errno = system_errno;
    resolve->addresses = addresses;
    resolve->count = count;
    resolve->done = true;
    if (resolve->fd >= 0) {
        eventfd_write(resolve->fd, 1);
    }
    pthread_mutex_unlock(&resolve->lock);
    return error;
}

static void *run_lookup(void *arg)
{
    do_lookup(arg, 0);
    drop_lookup(arg);
    return NULL;
}

static tmsg_status_t start_lookup_thread(tmsg_resolve_t *resolve)
{
    int error;

    /* The thread has a reference. */
    resolve->references++;
    error = tmsg_thread_detach(run_lookup, resolve);
    if (error != 0) {
        resolve->references--;
        errno = error;
        return tmsg_error_errno(TMSG_ERR_IO,
                                "starting a thread to look up host '%s'",
                                resolve->host);
    }
    return TMSG_OK;
}

static tmsg_resolve_t *create_lookup(const char *host, uint16_t port,
                                     bool passive)
{
    size_t bytes = strlen(host) + 1;
    tmsg_resolve_t *resolve = calloc(1, sizeof(*resolve) + bytes);

    if (resolve == NULL) {
        return NULL;
    }
    pthread_mutex_init(&resolve->lock, NULL);
    resolve->references = 1;
    resolve->lookup = current_lookup;
    resolve->passive = passive;
    snprintf(resolve->service, sizeof(resolve->service), "%u", port);
    memcpy(resolve->host, host, bytes);
    return resolve;
}

tmsg_status_t tmsg_resolve_start(const char *host, uint16_t port, bool passive,
                                 tmsg_resolve_t **resolve_p)
{
    tmsg_status_t status = TMSG_OK;
    tmsg_resolve_t *resolve =
        create_lookup(*host != '\0' ? host : "127.0.0.1", port, passive);

    if (resolve == NULL) {
        return tmsg_error_memory("looking up a host");
    }
    resolve->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (resolve->fd < 0) {
        status = tmsg_error_errno(TMSG_ERR_IO,
                                  "a descriptor to look up host '%s'", host);
    } else if (do_lookup(resolve, AI_NUMERICHOST) == EAI_NONAME) {
        status = start_lookup_thread(resolve);
    }
    if (status != TMSG_OK) {
        tmsg_resolve_abandon(resolve);
        return status;
    }
    *resolve_p = resolve;
    return TMSG_OK;
}

int tmsg_resolve_fd(const tmsg_resolve_t *resolve) { return resolve->fd; }

/* Returns the zone of a host like "fe80::1%eth0", if this machine has no such
 * device, else NULL. */
static const char *missing_device(const char *host)
{
    const char *zone = strchr(host, '%');
    char *end;

    if (zone == NULL || zone[1] == '\0' || if_nametoindex(zone + 1) != 0) {
        return NULL;
    }
    /* The zone may be a number, too. */
    strtoul(zone + 1, &end, 10);
    return *end == '\0' ? NULL : zone + 1;
}

static tmsg_status_t host_not_found(const tmsg_resolve_t *resolve)
{
    const char *device = missing_device(resolve->host);

    return device != NULL
               ? tmsg_error_set(TMSG_ERR_NOT_FOUND,
                                "host '%s' not found: this host has no network "
                                "device '%s'",
                                resolve->host, device)
               : tmsg_error_set(TMSG_ERR_NOT_FOUND, "host '%s' not found: %s",
                                resolve->host, gai_strerror(resolve->error));
}

static tmsg_status_t answer_of_lookup(const tmsg_resolve_t *resolve)
{
    switch (resolve->error) {
    case 0:
        return TMSG_OK;
    case EAI_MEMORY:
        return tmsg_error_memory("looking up a host");
    case EAI_SYSTEM:
        errno = resolve->system_errno;
        return tmsg_error_errno(TMSG_ERR_IO, "looking up host '%s'",
                                resolve->host);
    default:
        return host_not_found(resolve);
    }
}

tmsg_status_t tmsg_resolve_take(tmsg_resolve_t *resolve,
                                const tmsg_address_t **addresses_p,
                                size_t *count_p)
{
    tmsg_status_t status;
    bool done;

    pthread_mutex_lock(&resolve->lock);
    done = resolve->done;
    pthread_mutex_unlock(&resolve->lock);
    if (!done) {
        return TMSG_IN_PROGRESS;
    }
    /* Nothing changes any more once the lookup is done. */
    status = answer_of_lookup(resolve);
    if (status == TMSG_OK) {
        *addresses_p = resolve->addresses;
        *count_p = resolve->count;
    }
    return status;
}

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

tmsg_status_t tmsg_resolve_wait(tmsg_resolve_t *resolve, int timeout_ms)
{
    struct pollfd poller = {.fd = resolve->fd, .events = POLLIN};
    int64_t deadline = now_ms() + timeout_ms;
    const tmsg_address_t *addresses;
    size_t count;
    tmsg_status_t status;

    while ((status = tmsg_resolve_take(resolve, &addresses, &count)) ==
           TMSG_IN_PROGRESS) {
        int64_t left = deadline - now_ms();

        if (timeout_ms >= 0 && left <= 0) {
            return tmsg_error_set(TMSG_ERR_TIMED_OUT,
                                  "host '%s': no answer within %d ms",
                                  resolve->host, timeout_ms);
        }
        poll(&poller, 1, timeout_ms < 0 ? -1 : (int)left);
    }
    return status;
}

void tmsg_resolve_abandon(tmsg_resolve_t *resolve)
{
    if (resolve == NULL) {
        return;
    }
    pthread_mutex_lock(&resolve->lock);
    if (resolve->fd >= 0) {
        close(resolve->fd);
        resolve->fd = -1;
    }
    pthread_mutex_unlock(&resolve->lock);
    drop_lookup(resolve);
}
