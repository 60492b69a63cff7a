/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/ucx/ucx.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include "am/net/netif.h"
#include "am/ucx/backing.h"
#include "am/ucx/config_check.h"
#include "am/ucx/deferred.h"
#include "am/ucx/ep_index.h"
#include "am/ucx/first.h"
#include "am/ucx/fork_guard.h"
#include "am/ucx/linger.h"
#include "am/ucx/peer_address.h"
#include "am/ucx/retained.h"
#include "am/ucx/siblings.h"
#include "am/ucx/ucx_events.h"
#include "am/ucx/ucx_pipe.h"
#include "am/ucx/words.h"
#include "core/error.h"
#include "core/log.h"
#include "memory/domain.h"
#include "serialize/header.h"

#define BLAME_BYTES 240
#define DESCRIPTORS 40       /* more than a UCX worker takes */
#define DESCRIPTORS_MOST 256 /* descriptors that are tried at most */
#define RETRY_NS 10000000000ULL

/* Writes the settings of the user or application that may leave UCX nothing to
 * work with, if there are any. */
static const char *blame_settings(const tmsg_ucx_t *ucx, char *text,
                                  size_t bytes)
{
    static const char *const names[] = {"UCX_TLS", "UCX_NET_DEVICES"};
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const tmsg_ucx_key_t *key = tmsg_ucx_config_key(&ucx->keys, names[i]);

        if (key != NULL && key->origin != TMSG_ORIGIN_DEFAULT) {
            used += (size_t)snprintf(text + used, bytes - used,
                                     "; %s=%.80s (%s)", key->name, key->value,
                                     tmsg_ucx_origin_name(key->origin));
        }
    }
    return text;
}

_Static_assert(TMSG_UCX_MEMORY_CUDA == (int)UCS_MEMORY_TYPE_CUDA,
               "UCX's number of a type of memory");

_Atomic bool tmsg_ucx_beside_cuda;

const tmsg_ucx_memory_type_t tmsg_ucx_memory_types[TMSG_UCX_MEMORY_TYPES] = {
    {"host", UCS_MEMORY_TYPE_HOST},
    {"cuda", UCS_MEMORY_TYPE_CUDA},
    {"cuda-managed", UCS_MEMORY_TYPE_CUDA_MANAGED},
    {"rocm", UCS_MEMORY_TYPE_ROCM},
    {"rocm-managed", UCS_MEMORY_TYPE_ROCM_MANAGED},
};

uint64_t tmsg_ucx_memory(tmsg_ucx_context_t context)
{
    ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};

    return ucp_context_query(context, &attr) == UCS_OK
               ? attr.memory_types
               : UCS_BIT(UCS_MEMORY_TYPE_HOST);
}

static tmsg_status_t open_context(tmsg_ucx_t *ucx)
{
    char settings[BLAME_BYTES];
    ucp_config_t *config;
    ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME,
        .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP |
                    (ucx->scope.family == 0 ? 0 : UCP_FEATURE_STREAM),
        .name = "tensormsg",
    };
    ucs_status_t ucs;
    int mode;
    tmsg_status_t status = tmsg_ucx_config_apply(&ucx->keys, &config);

    if (status != TMSG_OK) {
        return status;
    }
    if (tmsg_ucx_config_serves_cuda()) {
        tmsg_ucx_beside_cuda = true;
    }
    mode = tmsg_ucx_relax();
    ucs = ucp_init(&params, config, &ucx->context);
    tmsg_ucx_restore(mode);
    ucp_config_release(config);
    if (ucs != UCS_OK) {
        return tmsg_error_set(
            TMSG_ERR_INTERNAL, "UCX does not start on %s: %s%s",
            ucx->scope.device[0] == '\0' ? "shared memory" : ucx->scope.device,
            ucs_status_string(ucs),
            blame_settings(ucx, settings, sizeof(settings)));
    }
    status = tmsg_ucx_check_keys(&ucx->keys);
    if (status != TMSG_OK) {
        ucp_cleanup(ucx->context);
    }
    ucx->memory_types = status == TMSG_OK ? tmsg_ucx_memory(ucx->context) : 0;
    if (tmsg_ucx_knows_cuda(ucx)) {
        tmsg_ucx_beside_cuda = true;
        tmsg_cuda_share();
    }
    return status;
}

/* Returns the longest header that UCX takes. This may be less than UCX claims:
 * with a zero-copy payload UCX copies a header into a buffer of UCX_SEG_SIZE,
 * unchecked. */
static size_t longest_header(const tmsg_ucx_t *ucx, size_t claimed)
{
    uint64_t segment = tmsg_ucx_config_bytes(&ucx->keys, "UCX_SEG_SIZE");

    return claimed < segment ? claimed : (size_t)segment;
}

#define SHARED "posix,sysv,xpmem,mm,sm,shm"

/* Returns whether a status means that UCX gets no shared memory. */
static bool is_for_want_of_room(const tmsg_ucx_t *ucx, ucs_status_t ucs)
{
    return (ucs == UCS_ERR_NO_MEMORY || ucs == UCS_ERR_NO_RESOURCE ||
            ucs == UCS_ERR_SHMEM_SEGMENT) &&
           tmsg_ucx_config_takes(&ucx->keys, SHARED);
}

static tmsg_status_t no_room_for_ucx(const tmsg_ucx_t *ucx)
{
    char settings[BLAME_BYTES], text[TMSG_BACKING_BYTES];

    return tmsg_error_set(TMSG_ERR_NO_MEMORY, "%s%s",
                          tmsg_backing_text(&ucx->keys, text, sizeof(text)),
                          blame_settings(ucx, settings, sizeof(settings)));
}

/* Held while a UCX worker is made or destroyed. Which descriptors a new one has
 * is found by what was there before: a number that was given back meanwhile,
 * and taken again, would be missed. Recursive: what UCX reports while a worker
 * is destroyed may let go of another. */
static pthread_mutex_t descriptors = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

/* UCX frees device memory of its own when it is closed, and gives work to
 * streams of its own when it is armed. UCX 1.22 makes no context current for
 * either: without one the driver refuses, and UCX never frees that memory. */
static void with_context(const tmsg_ucx_t *ucx, void (*call)(void *arg),
                         void *arg)
{
    if (tmsg_ucx_knows_cuda(ucx)) {
        tmsg_cuda_within(call, arg);
    } else {
        call(arg);
    }
}

static void destroy_ucp(void *arg)
{
    tmsg_ucx_t *ucx = arg;

    if (ucx->ucp != NULL) {
        pthread_mutex_lock(&descriptors);
        ucp_worker_destroy(ucx->ucp);
        pthread_mutex_unlock(&descriptors);
        ucx->ucp = NULL;
    }
    ucp_cleanup(ucx->context);
}

/* Destroys UCX's worker, if there is one, and its context. */
static void close_ucp(tmsg_ucx_t *ucx) { with_context(ucx, destroy_ucp, ucx); }

static tmsg_status_t open_worker(tmsg_ucx_t *ucx, tmsg_ucx_arrived_t handler)
{
    ucp_worker_params_t params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE |
                      UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT,
        .thread_mode = UCS_THREAD_MODE_SERIALIZED,
        .am_alignment = TMSG_PAYLOAD_ALIGNMENT, /* in_place.h says why */
    };
    ucp_worker_attr_t attr = {.field_mask =
                                  UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER};
    ucp_am_handler_param_t am = {
        .field_mask =
            UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
            UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = TMSG_AM_ID,
        .flags = UCP_AM_FLAG_WHOLE_MSG | UCP_AM_FLAG_PERSISTENT_DATA,
        .cb = handler,
        .arg = ucx,
    };
    char settings[BLAME_BYTES];
    tmsg_watched_t *before;
    ucs_status_t ucs;
    int mode;

    pthread_mutex_lock(&descriptors);
    before = tmsg_socket_sets_before();
    mode = tmsg_ucx_relax();
    ucs = ucp_worker_create(ucx->context, &params, &ucx->ucp);
    tmsg_ucx_restore(mode);
    tmsg_socket_sets_find(before, &ucx->sets);
    pthread_mutex_unlock(&descriptors);
    if (ucs == UCS_OK) {
        ucs = ucp_worker_query(ucx->ucp, &attr);
    }
    if (ucs == UCS_OK) {
        ucs = ucp_worker_set_am_recv_handler(ucx->ucp, &am);
    }
    if (ucs == UCS_OK) {
        ucs = ucp_worker_get_efd(ucx->ucp, &ucx->fd);
    }
    ucx->max_am_header = longest_header(ucx, attr.max_am_header);
    if (ucs == UCS_OK && ucx->max_am_header < TMSG_AM_HEADER_LEAST) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "UCX takes active-message headers of %zu bytes, "
                              "at least %d are needed: a UCX_*_SEG_SIZE is "
                              "too small",
                              ucx->max_am_header, TMSG_AM_HEADER_LEAST);
    }
    if (is_for_want_of_room(ucx, ucs)) {
        return no_room_for_ucx(ucx);
    }
    if (ucs != UCS_OK) {
        return tmsg_error_set(TMSG_ERR_INTERNAL, "a UCX worker: %s%s",
                              ucs_status_string(ucs),
                              blame_settings(ucx, settings, sizeof(settings)));
    }
    return TMSG_OK;
}

/* Returns a segment size in force. `standard` is UCX's default, the same in
 * 1.13 to 1.22. */
static uint64_t key_bytes(const tmsg_ucx_t *ucx, const char *name,
                          uint64_t standard)
{
    uint64_t bytes = tmsg_ucx_config_bytes(&ucx->keys, name);

    return bytes == 0 ? standard : bytes;
}

/* Returns whether UCX may open a peer's memory by /proc, or read it directly.
 * System V's shared memory needs only the same user, so no more is asked of the
 * peer for it. */
static bool opens_memory(const tmsg_ucx_t *ucx)
{
    static const char *const ways[] = {"posix,mm,sm,shm", "cma,sm,shm",
                                       "xpmem,mm,sm,shm", "knem,sm,shm"};
    bool opens = false;

    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]) && !opens; i++) {
        opens = tmsg_ucx_config_takes(&ucx->keys, ways[i]);
    }
    return opens;
}

static void fill_hello(tmsg_ucx_t *ucx)
{
    tmsg_ucx_version_t version = tmsg_ucx_version();

    ucx->hello.ucx_major = (uint16_t)version.major;
    ucx->hello.ucx_minor = (uint16_t)version.minor;
    ucx->hello.ucx_patch = (uint16_t)version.patch;
    ucx->hello.max_am_header = (uint32_t)ucx->max_am_header;
    if (ucx->memory_types & ~UCS_BIT(UCS_MEMORY_TYPE_HOST)) {
        ucx->hello.features |= TMSG_FEATURE_DEVICES;
    }
    ucx->hello.tcp_tx_seg = key_bytes(ucx, "UCX_TCP_TX_SEG_SIZE", 8192);
    ucx->hello.tcp_rx_seg = key_bytes(ucx, "UCX_TCP_RX_SEG_SIZE", 65536);
    ucx->hello.posix_seg = key_bytes(ucx, "UCX_POSIX_SEG_SIZE", 8256);
    if (!opens_memory(ucx)) {
        tmsg_hello_untell_memory(&ucx->hello);
    }
}

tmsg_status_t tmsg_ucx_check_descriptors(int fd, size_t needed)
{
    int spare[DESCRIPTORS_MOST];
    size_t count = 0;
    tmsg_status_t status = TMSG_OK;

    needed = needed > DESCRIPTORS_MOST ? DESCRIPTORS_MOST : needed;
    while (count < needed && status == TMSG_OK) {
        spare[count] = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (spare[count] >= 0) {
            count++;
        } else {
            status = tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                                    "UCX needs %zu descriptors, and %zu are "
                                    "left (RLIMIT_NOFILE, ulimit -n)",
                                    needed, count);
        }
    }
    while (count > 0) {
        close(spare[--count]);
    }
    return status;
}

/* Opens UCX's context and worker for the scope as it is. A lack of room is
 * found before UCX tries: UCX would complain. */
static tmsg_status_t open_scope(tmsg_ucx_t *ucx, tmsg_ucx_arrived_t handler)
{
    tmsg_status_t status =
        tmsg_ucx_config_resolve(&ucx->given, &ucx->scope, &ucx->keys);

    if (status == TMSG_OK && !tmsg_backing_suffices(&ucx->keys)) {
        status = no_room_for_ucx(ucx);
    }
    if (status == TMSG_OK) {
        status = open_context(ucx);
    }
    if (status != TMSG_OK) {
        return status;
    }
    status = open_worker(ucx, handler);
    if (status != TMSG_OK) {
        close_ucp(ucx);
    }
    return status;
}

/* Opens UCX without shared memory if there is no room for it, and the scope has
 * a network. */
static tmsg_status_t open_what_can_be(tmsg_ucx_t *ucx,
                                      tmsg_ucx_arrived_t handler)
{
    tmsg_status_t status = open_scope(ucx, handler);
    char why[TMSG_ERROR_BYTES];

    if (status != TMSG_ERR_NO_MEMORY || ucx->scope.device[0] == '\0' ||
        ucx->scope.or_not) {
        return status;
    }
    ucx->lack = tmsg_backing_lack(&ucx->keys);
    ucx->apart_ns = tmsg_now_ns();
    snprintf(why, sizeof(why), "%s", tmsg_error_message());
    ucx->scope.net_only = true;
    status = open_scope(ucx, handler);
    if (status == TMSG_OK) {
        tmsg_log_of(TMSG_LOG_UCX_KIND, ucx->scope.device, TMSG_LOG_WARN,
                    "%s: peers on this machine are met by TCP", why);
    }
    return status;
}

/* Returns whether UCX listens at the scope's address: whether the address of
 * the network that peers are told contains it. */
static bool has_its_address(const tmsg_ucx_t *ucx, const void *net,
                            size_t bytes)
{
    const struct in6_addr *ip = &ucx->scope.address;
    bool is_v4 = IN6_IS_ADDR_V4MAPPED(ip);

    return memmem(net, bytes, is_v4 ? &ip->s6_addr[12] : ip->s6_addr,
                  is_v4 ? 4 : 16) != NULL;
}

/* Notes that UCX can use no address of the device. This is no error: peers on
 * this machine are still reached by shared memory. */
static void check_numbers(tmsg_ucx_t *ucx)
{
    if (strcmp(ucx->scope.device, "lo") != 0 &&
        tmsg_netif_is_unnumbered(ucx->scope.device)) {
        snprintf(ucx->elsewhere, sizeof(ucx->elsewhere),
                 "UCX uses no link-local address, and %s has no other",
                 ucx->scope.device);
        tmsg_log_of(TMSG_LOG_UCX_KIND, ucx->scope.device, TMSG_LOG_WARN, "%s",
                    ucx->elsewhere);
    }
}

/* Notes why UCX does not use the scope's address, if it does not. */
static void check_address(tmsg_ucx_t *ucx, const void *net, size_t bytes)
{
    char wanted[INET6_ADDRSTRLEN], all[200];
    const struct in6_addr *ip = &ucx->scope.address;
    bool is_v4 = IN6_IS_ADDR_V4MAPPED(ip);

    if (!tmsg_ucx_scope_has_address(&ucx->scope)) {
        check_numbers(ucx);
        return;
    }
    if (!tmsg_ucx_config_takes(&ucx->keys, "tcp") ||
        has_its_address(ucx, net, bytes)) {
        return;
    }
    inet_ntop(is_v4 ? AF_INET : AF_INET6,
              is_v4 ? &ip->s6_addr[12] : ip->s6_addr, wanted, sizeof(wanted));
    snprintf(ucx->elsewhere, sizeof(ucx->elsewhere),
             "UCX does not take the address %s of %s, which has %s", wanted,
             ucx->scope.device,
             tmsg_netif_list(ucx->scope.device, all, sizeof(all)));
    tmsg_log_of(TMSG_LOG_UCX_KIND, ucx->scope.device, TMSG_LOG_WARN, "%s",
                ucx->elsewhere);
}

/* Opens UCX so that it takes the scope's address. By itself UCX takes the first
 * address of a device. */
static tmsg_status_t open_at_address(tmsg_ucx_t *ucx,
                                     tmsg_ucx_arrived_t handler)
{
    char device[IFNAMSIZ] = "";
    tmsg_status_t status;

    if (!tmsg_ucx_scope_has_address(&ucx->scope)) {
        return open_what_can_be(ucx, handler);
    }
    tmsg_netif_of_ip(&ucx->scope.address, device);
    if (tmsg_first_is(device, &ucx->scope.address)) {
        return open_what_can_be(ucx, handler);
    }
    /* check_address() finds out. */
    (void)tmsg_first_begin(device, &ucx->scope.address);
    status = open_what_can_be(ucx, handler);
    tmsg_first_end();
    return status;
}

/* Notes whether a peer that has this side's address could write to its memory,
 * and what the address says. */
static tmsg_status_t read_addresses(tmsg_ucx_t *ucx)
{
    void *net = NULL;
    size_t net_bytes;
    tmsg_status_t status =
        tmsg_ucx_address(ucx, false, &ucx->address, &ucx->address_bytes);

    if (status == TMSG_OK) {
        status = tmsg_ucx_address(ucx, true, &net, &net_bytes);
    }
    if (status == TMSG_OK) {
        ucx->shares = ucx->scope.device[0] == '\0' ||
                      ucx->address_bytes != net_bytes ||
                      memcmp(ucx->address, net, net_bytes) != 0;
        check_address(ucx, net, net_bytes);
        status = tmsg_own_address_read(ucx->address, ucx->address_bytes, net,
                                       net_bytes, &ucx->own);
    }
    tmsg_ucx_address_free(net);
    if (status != TMSG_OK) {
        tmsg_ucx_address_free(ucx->address);
    }
    return status;
}

tmsg_status_t tmsg_ucx_open(const tmsg_ucx_owner_t *owner,
                            const tmsg_ucx_scope_t *scope, bool dialling,
                            const tmsg_hello_t *hello,
                            tmsg_ucx_arrived_t handler, tmsg_ucx_t **ucx_p)
{
    tmsg_ucx_t *ucx;
    tmsg_status_t status;

    tmsg_fork_guard_begin();
    status = tmsg_fork_guard_check_start();
    if (status != TMSG_OK) {
        goto err;
    }
    tmsg_deferred_sweep();
    ucx = calloc(1, sizeof(*ucx));
    if (ucx == NULL) {
        status = tmsg_error_memory("a UCX worker");
        goto err;
    }
    ucx->worker = owner->worker;
    ucx->loop = owner->loop;
    ucx->given = owner->given;
    tmsg_refs_init(&ucx->holders, 1);
    ucx->source.fd = -1;
    ucx->scope = *scope;
    ucx->dialling = dialling;
    ucx->hello = *hello;
    status = tmsg_ucx_check_descriptors(owner->loop->epoll_fd, DESCRIPTORS);
    if (status == TMSG_ERR_LIMIT_EXCEEDED && tmsg_deferred_is_waiting()) {
        /* The worker is locked, so this does not wait for them. */
        tmsg_error_set(status,
                       "UCX needs %d descriptors (RLIMIT_NOFILE, ulimit -n), "
                       "and peers that were given up keep some for 250 ms "
                       "more at most: try again",
                       DESCRIPTORS);
    }
    if (status == TMSG_OK) {
        status = tmsg_fork_guard_enter();
    }
    if (status != TMSG_OK) {
        goto err_free;
    }
    status = open_at_address(ucx, handler);
    if (status != TMSG_OK) {
        goto err_leave;
    }
    status = read_addresses(ucx);
    if (status != TMSG_OK) {
        close_ucp(ucx);
        goto err_leave;
    }
    ucx->pool = tmsg_backing_pool(&ucx->keys);
    fill_hello(ucx);
    tmsg_siblings_enter(ucx);
    tmsg_fork_guard_end();
    *ucx_p = ucx;
    return TMSG_OK;

err_leave:
    tmsg_fork_guard_leave();
err_free:
    free(ucx);
err:
    tmsg_fork_guard_end();
    return status;
}

/* Works out the keys that a UCX worker without shared memory would have with
 * it. */
static tmsg_status_t resolve_shared(const tmsg_ucx_t *ucx,
                                    tmsg_ucx_keys_t *keys)
{
    tmsg_ucx_scope_t scope = ucx->scope;

    scope.net_only = false;
    return tmsg_ucx_config_resolve(&ucx->given, &scope, keys);
}

bool tmsg_ucx_may_share(const tmsg_ucx_t *ucx)
{
    tmsg_ucx_keys_t keys;

    return ucx->lack == TMSG_LACK_BYTES
               ? resolve_shared(ucx, &keys) == TMSG_OK &&
                     tmsg_backing_needs(&keys) != 0 &&
                     tmsg_backing_suffices(&keys)
               : tmsg_now_ns() - ucx->apart_ns >= RETRY_NS;
}

void tmsg_ucx_stays_apart(tmsg_ucx_t *ucx)
{
    tmsg_ucx_keys_t keys;

    if (resolve_shared(ucx, &keys) == TMSG_OK) {
        ucx->lack = tmsg_backing_lack(&keys);
    }
    ucx->apart_ns = tmsg_now_ns();
}

/* UCX workers that must not be closed, so that leak checkers find them. */
static _Atomic(tmsg_ucx_t *) left_behind;

/* While its worker is destroyed, UCX reports all operations that it has not
 * reported yet. These reports can be handled only during this call. So a UCX
 * worker with unreported operations that cannot be destroyed now is left
 * behind. */
void tmsg_ucx_close(tmsg_ucx_t *ucx)
{
    bool stays;

    tmsg_deferred_sweep();
    tmsg_siblings_leave(ucx);
    ucx->worker = NULL;
    ucx->loop = NULL;
    ucx->given = (tmsg_ucx_given_t){.code = NULL};
    stays = tmsg_linger_look(ucx);
    if (ucx->unreported && !stays && !tmsg_refs_are(&ucx->holders, 1)) {
        ucx->next = atomic_exchange(&left_behind, ucx);
        tmsg_log_of(TMSG_LOG_LEFT_KIND, "peers that went", TMSG_LOG_WARN,
                    "UCX does not report the end of a peer: shared memory that "
                    "may be written to is left behind");
        return;
    }
    if (stays) {
        ucx->abandoned |= ucx->unreported;
        tmsg_deferred_take(ucx);
        return;
    }
    if (ucx->cm_listener != NULL) {
        ucp_listener_destroy(ucx->cm_listener);
    }
    tmsg_ucx_let_go(ucx);
}

void tmsg_ucx_let_go(tmsg_ucx_t *ucx)
{
    if (!tmsg_refs_drop(&ucx->holders)) {
        return;
    }
    tmsg_ucx_release_lifted(ucx);
    if (ucx->pipes != NULL) {
        tmsg_ucx_free_pipes(ucx);
    } else {
        tmsg_fork_guard_begin();
        close_ucp(ucx);
        tmsg_fork_guard_leave();
        tmsg_fork_guard_end();
    }
    tmsg_ep_index_free(ucx);
    tmsg_ucx_address_free(ucx->address);
    tmsg_own_address_free(ucx->own);
    free(ucx);
}

tmsg_status_t tmsg_ucx_address(const tmsg_ucx_t *ucx, bool net_only,
                               void **address_p, size_t *bytes_p)
{
    ucp_worker_attr_t attr = {
        .field_mask =
            UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS,
        .address_flags = net_only ? UCP_WORKER_ADDRESS_FLAG_NET_ONLY : 0,
    };
    int mode = tmsg_ucx_relax();
    ucs_status_t ucs = ucp_worker_query(ucx->ucp, &attr);
    void *copy;

    tmsg_ucx_restore(mode);
    if (ucs != UCS_OK) {
        return tmsg_error_set(TMSG_ERR_INTERNAL, "UCX worker address: %s",
                              ucs_status_string(ucs));
    }
    copy = malloc(attr.address_length);
    if (copy != NULL) {
        memcpy(copy, attr.address, attr.address_length);
        *address_p = copy;
        *bytes_p = attr.address_length;
    }
    ucp_worker_release_address(ucx->ucp, attr.address);
    return copy == NULL ? tmsg_error_memory("a UCX worker address") : TMSG_OK;
}

void tmsg_ucx_address_free(void *address) { free(address); }

void tmsg_ucx_numb(tmsg_ucx_t *ucx)
{
    ucx->numb = true;
    tmsg_ucx_events.supersede(ucx);
}

__attribute__((noinline)) static unsigned progress_other(const tmsg_ucx_t *ucx)
{
    unsigned count;
    int mode;

    if (ucx->pipes != NULL) {
        return tmsg_pipes_progress(ucx->pipes);
    }
    mode = tmsg_cuda_relax();
    tmsg_ucx_words_serving = true;
    count = ucp_worker_progress(ucx->ucp);
    tmsg_ucx_words_serving = false;
    tmsg_cuda_restore(mode);
    return count;
}

unsigned tmsg_ucx_progress(const tmsg_ucx_t *ucx)
{
    return ucx->pipes != NULL || tmsg_ucx_knows_cuda(ucx)
               ? progress_other(ucx)
               : ucp_worker_progress(ucx->ucp);
}

typedef struct {
    ucp_worker_h ucp;
    ucs_status_t status;
} arm_t;

static void arm(void *arg)
{
    arm_t *what = arg;

    what->status = ucp_worker_arm(what->ucp);
}

tmsg_status_t tmsg_ucx_arm(const tmsg_ucx_t *ucx)
{
    arm_t what = {.ucp = ucx->ucp};

    if (ucx->pipes != NULL) {
        return tmsg_pipes_arm(ucx->pipes) ? TMSG_OK : TMSG_ERR_BUSY;
    }
    if (ucx->numb) {
        return TMSG_OK;
    }
    with_context(ucx, arm, &what);
    if (what.status == UCS_ERR_BUSY) {
        return TMSG_ERR_BUSY;
    }
    return what.status == UCS_OK
               ? TMSG_OK
               : tmsg_error_set(TMSG_ERR_INTERNAL, "ucp_worker_arm: %s",
                                ucs_status_string(what.status));
}
