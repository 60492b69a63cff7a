/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/ucx/config.h"

#include <dlfcn.h>
#include <limits.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include "am/net/netif.h"
#include "am/ucx/fork_guard.h"
#include "am/ucx/words.h"
#include "core/error.h"
#include "core/log.h"
#include "memory/domain.h"

/* The keys that we set, and those whose value we must know. ucp_config_modify()
 * takes a transport's key without the transport's prefix up to UCX 1.16, and
 * with it later. The environment has the prefix in all versions. */
static const struct {
    const char *name;    /* with the transport's prefix, without UCX_ */
    const char *plain;   /* as UCX 1.16 and older take it; NULL: as `name` */
    const char *inherit; /* what UCX reads if `name` is not set, or NULL */
    const char *value;   /* our default; NULL: we set none */
    const char *users;   /* transports that know the key; NULL: UCX itself */
    const char *why;
} defaults[] = {
    {"POSIX_ERROR_HANDLING", "MM_ERROR_HANDLING", "MM_ERROR_HANDLING", "y",
     "posix,mm,sm,shm", "keeps shared memory in use although peers may fail"},
    {"TCP_RX_SEG_SIZE", "RX_SEG_SIZE", NULL, NULL, NULL, NULL},
    {"TCP_TX_SEG_SIZE", "TX_SEG_SIZE", NULL, "60k", "tcp",
     "fewer fragments for scatter lists"},
    {"KEEPALIVE_INTERVAL", NULL, NULL, "1s", NULL,
     "notices a dead shared-memory peer"},
    {"SEG_SIZE", NULL, NULL, "64k", NULL,
     "UCX copies headers into buffers of this size, unchecked"},
    {"TCP_CONN_NB", "CONN_NB", NULL, "y", "tcp",
     "a firewall before UCX's port does not hold up the process"},
    /* UCX's heap overflows if its listener has another family. */
    {"TCP_AF_PRIO", "AF_PRIO", NULL, NULL, NULL, NULL},
    /* Both ends must agree on this size. */
    {"POSIX_SEG_SIZE", NULL, "MM_SEG_SIZE", NULL, NULL, NULL},
    /* The folder is needed to tell what is free there (backing.h). */
    {"POSIX_DIR", "DIR", NULL, NULL, NULL, NULL},
    /* check_dangerous() refuses some values of these. */
    {"TCP_MAX_IOV", "MAX_IOV", NULL, NULL, NULL, NULL},
    {"PROTO_ENABLE", NULL, NULL, NULL, NULL, NULL},
};

#define DEFAULT_COUNT (sizeof(defaults) / sizeof(defaults[0]))

/* Most keys that the application may set. Room must be left for all others. */
#define GIVEN_MOST 40

#define PRINTED_MOST 127 /* bytes of a value that UCX prints */

static const char *const origin_names[] = {"default", "environment", "code",
                                           "file"};

/* UCX 1.13 sets signal handlers for SIGSEGV and similar signals when it is
 * loaded. This takes them away again, before main(), unless the user configured
 * UCX's handling. Later it would undo what the application has set up since. */
__attribute__((constructor)) static void give_signals_back(void)
{
    union {
        void *object;
        void (*call)(void);
    } disable = {.object = dlsym(RTLD_DEFAULT, "ucs_debug_disable_signals")};

    if (disable.object != NULL && getenv("UCX_HANDLE_ERRORS") == NULL) {
        disable.call();
    }
}

bool tmsg_ucx_scope_equal(const tmsg_ucx_scope_t *one,
                          const tmsg_ucx_scope_t *other)
{
    return strcmp(one->device, other->device) == 0 &&
           one->pipes == other->pipes && one->named == other->named &&
           one->family == other->family &&
           memcmp(&one->address, &other->address, sizeof(one->address)) == 0;
}

bool tmsg_ucx_scope_has_address(const tmsg_ucx_scope_t *scope)
{
    return !IN6_IS_ADDR_UNSPECIFIED(&scope->address);
}

const char *tmsg_ucx_origin_name(tmsg_ucx_origin_t origin)
{
    return origin_names[origin];
}

bool tmsg_ucx_key_is_given(const tmsg_ucx_key_t *key)
{
    return key->origin == TMSG_ORIGIN_CODE || key->origin == TMSG_ORIGIN_FILE;
}

const char *tmsg_ucx_key_source(const tmsg_ucx_key_t *key)
{
    return key->origin == TMSG_ORIGIN_FILE ? key->why : "ucx_config";
}

tmsg_ucx_version_t tmsg_ucx_version(void)
{
    tmsg_ucx_version_t version;

    ucp_get_version(&version.major, &version.minor, &version.patch);
    return version;
}

static bool takes_prefixes(void)
{
    tmsg_ucx_version_t version = tmsg_ucx_version();

    return version.major > 1 || version.minor >= 17;
}

const tmsg_ucx_key_t *tmsg_ucx_config_key(const tmsg_ucx_keys_t *keys,
                                          const char *name)
{
    for (size_t i = 0; i < keys->count; i++) {
        if (strcmp(keys->keys[i].name, name) == 0) {
            return &keys->keys[i];
        }
    }
    return NULL;
}

static void put_key(tmsg_ucx_keys_t *keys, const char *name, const char *value,
                    tmsg_ucx_origin_t origin, const char *why)
{
    tmsg_ucx_key_t *key = keys->keys;
    const tmsg_ucx_key_t *end = key + keys->count;

    while (key < end && strcmp(key->name, name) != 0) {
        key++;
    }
    if (key == end) {
        if (keys->count == TMSG_UCX_KEYS_MAX) {
            return;
        }
        keys->count++;
    }
    snprintf(key->name, sizeof(key->name), "%s", name);
    snprintf(key->value, sizeof(key->value), "%s", value);
    key->origin = origin;
    key->why = why;
}

/* Returns what the user's environment says of a key: by its full name, or by
 * the one that UCX inherits it from. */
static const char *from_environment(const char *name, const char *inherit)
{
    char variable[64];
    const char *value = getenv(name);

    if (value == NULL && inherit != NULL) {
        snprintf(variable, sizeof(variable), "UCX_%s", inherit);
        value = getenv(variable);
    }
    return value;
}

/* Sets a key to what the environment says, else to `value`, unless that is
 * NULL. A key that is set already stays. */
static void put_behind(tmsg_ucx_keys_t *keys, const char *full,
                       const char *inherit, const char *value,
                       tmsg_ucx_origin_t origin, const char *why)
{
    const char *environment = from_environment(full, inherit);

    if (tmsg_ucx_config_key(keys, full) != NULL) {
        return;
    }
    if (environment != NULL) {
        put_key(keys, full, environment, TMSG_ORIGIN_ENVIRONMENT, NULL);
    } else if (value != NULL) {
        put_key(keys, full, value, origin, why);
    }
}

static void put_default(tmsg_ucx_keys_t *keys, const char *name,
                        const char *inherit, const char *value, const char *why)
{
    char full[64];

    snprintf(full, sizeof(full), "UCX_%s", name);
    put_behind(keys, full, inherit, value, TMSG_ORIGIN_DEFAULT, why);
}

/* Splits the next "KEY=VALUE" off *text_p. False at the end. */
static bool next_pair(const char **text_p, char *key, size_t key_size,
                      char *value, size_t value_size, tmsg_status_t *status)
{
    const char *text = *text_p + strspn(*text_p, "; ");
    size_t length = strcspn(text, ";");
    size_t key_length = strcspn(text, "=;");

    *status = TMSG_OK;
    if (length == 0) {
        return false;
    }
    if (strncmp(text, "UCX_", 4) == 0) {
        *status = tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                 "ucx_config: '%.*s': leave out the UCX_ "
                                 "prefix",
                                 (int)length, text);
        return false;
    }
    if (key_length > 0 && key_length < length &&
        length - key_length > value_size) {
        *status = tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                 "ucx_config: the value of %.*s has %zu bytes, "
                                 "at most %zu are taken",
                                 (int)key_length, text, length - key_length - 1,
                                 value_size - 1);
        return false;
    }
    if (key_length == 0 || key_length == length || key_length + 5 > key_size) {
        *status = tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                 "ucx_config: '%.*s' is not KEY=VALUE",
                                 (int)length, text);
        return false;
    }
    snprintf(key, key_size, "UCX_%.*s", (int)key_length, text);
    snprintf(value, value_size, "%.*s", (int)(length - key_length - 1),
             text + key_length + 1);
    *text_p = text + length;
    return true;
}

static bool is_transport(const char *text, size_t length, const char *word)
{
    return strlen(word) == length && memcmp(text, word, length) == 0;
}

/* Returns whether a comma-separated list has a word. */
static bool has_word(const char *list, const char *word, size_t length)
{
    for (; list != NULL; list = strchr(list, ',')) {
        list += *list == ',';
        if (strncmp(list, word, length) == 0 &&
            (list[length] == '\0' || list[length] == ',')) {
            return true;
        }
    }
    return false;
}

/* Returns UCX_TLS in force. If the key holds only a part of it, returns all of
 * it from the environment. */
static const char *transports_of(const tmsg_ucx_keys_t *keys)
{
    const tmsg_ucx_key_t *key = tmsg_ucx_config_key(keys, "UCX_TLS");
    const char *environment;

    if (key == NULL) {
        return "all";
    }
    environment = key->origin == TMSG_ORIGIN_ENVIRONMENT &&
                          strlen(key->value) == sizeof(key->value) - 1
                      ? getenv("UCX_TLS")
                      : NULL;
    return environment == NULL ? key->value : environment;
}

bool tmsg_ucx_config_takes(const tmsg_ucx_keys_t *keys, const char *users)
{
    const char *tls = transports_of(keys);
    bool except = tls[0] == '^';
    bool named = false;

    if (keys->net_only && users != NULL && has_word(users, "sm", 2)) {
        return false;
    }
    if (users == NULL || has_word(tls, "all", 3)) {
        return true;
    }
    while (*users != '\0' && !named) {
        size_t length = strcspn(users, ",");

        named = has_word(tls + except, users, length);
        users += length + (users[length] == ',');
    }
    return named != except;
}

/* Returns whether UCX_NET_DEVICES names a kernel device of this machine, which
 * tcp needs. */
static bool has_device(const tmsg_ucx_keys_t *keys)
{
    const tmsg_ucx_key_t *key = tmsg_ucx_config_key(keys, "UCX_NET_DEVICES");
    const char *list = key == NULL ? "all" : key->value;
    char name[IFNAMSIZ];

    if (list[0] == '^' || has_word(list, "all", 3)) {
        return true;
    }
    for (; *list != '\0'; list += *list == ',') {
        size_t length = strcspn(list, ",");

        snprintf(name, sizeof(name), "%.*s", (int)length, list);
        list += length;
        if (length < sizeof(name) && if_nametoindex(name) != 0) {
            return true;
        }
    }
    return false;
}

/* Returns the full name of a key. The application may write a transport's key
 * with its prefix, without it, or as that of its family; all of these are one
 * key. */
static const char *full_name(const char *name, char *full, size_t bytes)
{
    const char *plain = name + strlen("UCX_");

    for (size_t i = 0; i < DEFAULT_COUNT; i++) {
        if ((defaults[i].plain != NULL &&
             strcmp(defaults[i].plain, plain) == 0) ||
            (defaults[i].inherit != NULL &&
             strcmp(defaults[i].inherit, plain) == 0)) {
            snprintf(full, bytes, "UCX_%s", defaults[i].name);
            return full;
        }
    }
    return name;
}

static const char *inherited_from(const char *full)
{
    for (size_t i = 0; i < DEFAULT_COUNT; i++) {
        if (strcmp(defaults[i].name, full + strlen("UCX_")) == 0) {
            return defaults[i].inherit;
        }
    }
    return NULL;
}

static tmsg_status_t put_given(const tmsg_ucx_given_t *given,
                               tmsg_ucx_keys_t *keys)
{
    const char *code = given->code, *file = given->file;
    tmsg_ucx_key_t key;
    char full[sizeof(key.name)];
    tmsg_status_t status = TMSG_OK;

    while (code != NULL && next_pair(&code, key.name, sizeof(key.name),
                                     key.value, sizeof(key.value), &status)) {
        put_key(keys, full_name(key.name, full, sizeof(full)), key.value,
                TMSG_ORIGIN_CODE, NULL);
    }
    while (status == TMSG_OK && file != NULL &&
           next_pair(&file, key.name, sizeof(key.name), key.value,
                     sizeof(key.value), &status)) {
        const char *name = full_name(key.name, full, sizeof(full));

        put_behind(keys, name, inherited_from(name), key.value,
                   TMSG_ORIGIN_FILE, given->path);
    }
    if (status == TMSG_OK && keys->count > GIVEN_MOST) {
        status = tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                "ucx_config: more than %d keys", GIVEN_MOST);
    }
    return status;
}

tmsg_status_t tmsg_ucx_config_check(const tmsg_ucx_given_t *given)
{
    tmsg_ucx_keys_t keys = {.count = 0};

    return put_given(given, &keys);
}

/* Returns whether UCX has a plug-in for CUDA, in the folder "ucx" beside its
 * library. A UCX that was built with CUDA has one. */
static bool has_plugin(const char *library)
{
    const char *end = strrchr(library, '/');
    char path[PATH_MAX];

    return end != NULL &&
           (size_t)snprintf(path, sizeof(path), "%.*s/ucx/libuct_cuda.so.0",
                            (int)(end - library), library) < sizeof(path) &&
           access(path, R_OK) == 0;
}

/* Another UCX would complain of what is set for CUDA. */
bool tmsg_ucx_config_serves_cuda(void)
{
    Dl_info info;
    void *symbol = dlsym(RTLD_DEFAULT, "ucp_worker_progress");

    return symbol != NULL && tmsg_cuda_is_loaded() &&
           dladdr(symbol, &info) != 0 && info.dli_fname != NULL &&
           has_plugin(info.dli_fname) && tmsg_cuda_is_ready();
}

static const char *choose_for_cuda(const char *without, const char *with)
{
    return tmsg_ucx_config_serves_cuda() ? with : without;
}

/* Sets the transports. A ucx:// scope gets no shared memory: a process that
 * dies while it writes to shared memory blocks it, and UCXX's peers give no
 * sign of life by which that is found out. */
static void put_transports(const tmsg_ucx_scope_t *scope, tmsg_ucx_keys_t *keys)
{
    bool loopback = strcmp(scope->device, "lo") == 0;

    if (scope->family != 0) {
        put_default(keys, "TLS", NULL, loopback ? "tcp" : "^sm",
                    "a ucx:// peer that dies would block shared memory");
        put_default(keys, "TCP_AF_PRIO", NULL,
                    scope->family == AF_INET6 ? "inet6" : "inet",
                    "UCX's listener must be of the family of its address");
    } else {
        put_default(keys, "TLS", NULL,
                    loopback ? choose_for_cuda("posix,cma,self,tcp",
                                               "posix,cma,self,tcp,cuda")
                             : NULL,
                    "what works on this machine");
    }
}

/* Prefers IPv6 if the address in use is an IPv6 one. IPv4 stays for devices
 * that are named and have only that. */
static void put_address_family(const tmsg_ucx_scope_t *scope,
                               tmsg_ucx_keys_t *keys)
{
    if (scope->family == 0 && tmsg_ucx_scope_has_address(scope) &&
        !IN6_IS_ADDR_V4MAPPED(&scope->address) &&
        tmsg_ucx_config_takes(keys, "tcp") && has_device(keys)) {
        put_default(keys, "TCP_AF_PRIO", NULL, "inet6,inet",
                    "the address in use is an IPv6 one");
    }
}

/* Returns whether a transport reaches other processes by the network. */
static bool is_network(const char *word, size_t length)
{
    static const char *const within[] = {"self", "cuda", "gdr", "rocm"};
    bool network = true;

    for (size_t i = 0; i < sizeof(within) / sizeof(within[0]); i++) {
        size_t most = strlen(within[i]);

        network &= length < most || memcmp(word, within[i], most) != 0;
    }
    return network;
}

static const char memory[] = "posix,sysv,xpmem,mm,sm,shm,cma,knem";

/* Returns whether UCX_TLS leaves a network when shared memory is left out. */
static bool has_network(const char *tls)
{
    bool network = tls[0] == '^' || has_word(tls, "all", 3);

    while (*tls != '\0' && !network) {
        size_t length = strcspn(tls, ",");

        network = !has_word(memory, tls, length) && is_network(tls, length);
        tls += length + (tls[length] == ',');
    }
    return network;
}

/* Makes UCX's pools take their shared memory from the backing file system
 * alone. By itself UCX takes it from wherever ALLOC says: first the file
 * system, unless less than SHM_MIN_SIZE is free there, then elsewhere. UCX 1.19
 * and later crash if it comes from elsewhere. */
static void put_backing(tmsg_ucx_keys_t *keys)
{
    static const char *const general[] = {"MM_ALLOC", "SM_ALLOC", "ALLOC"};
    static const char why[] = "a full /dev/shm is an error, and no crash";
    size_t i = 0;

    if (!takes_prefixes() || !tmsg_ucx_config_takes(keys, "posix,mm,sm,shm")) {
        return;
    }
    while (i < 2 && from_environment("", general[i]) == NULL) {
        i++;
    }
    put_default(keys, "POSIX_ALLOC", general[i], "md", why);
    put_default(keys, "POSIX_SHM_MIN_SIZE", NULL, "0", why);
    put_default(keys, "ALLOC_PRIO", NULL,
                choose_for_cuda("thp,mmap,heap,md:*", NULL),
                "UCX's own buffers, 8 MiB, are no shared memory");
}

/* Sets what keeps device memory out of the host's, and UCX's own part of it
 * small. The names have prefixes, so none is set before UCX 1.17. */
static void put_cuda(tmsg_ucx_keys_t *keys)
{
    static const struct {
        const char *name, *users, *value, *why;
        unsigned since; /* UCX 1.x */
    } cuda[] = {
        {"CUDA_IPC_ENABLE_GET_ZCOPY", "cuda,cuda_ipc", "on",
         "the receiver reads device memory in one copy, without NVLink, too",
         17},
        {"CUDA_COPY_ASYNC_MEM_TYPE", "cuda,cuda_copy", "cuda",
         "memory of a CUDA pool is not taken for managed memory", 18},
        {"RNDV_PIPELINE_ERROR_HANDLING", "cuda,cuda_copy,cuda_ipc", "y",
         "what passes through UCX's device memory goes by 4 MiB, not by 8 KB",
         18},
        {"RNDV_FRAG_ALLOC_COUNT", "cuda,cuda_copy,cuda_ipc", "host:128,cuda:8",
         "UCX takes 32 MiB of a device's memory at a time, not 512", 17},
    };
    tmsg_ucx_version_t version = tmsg_ucx_version();

    if (!tmsg_ucx_config_serves_cuda()) {
        return;
    }
    for (size_t i = 0; i < sizeof(cuda) / sizeof(cuda[0]); i++) {
        if ((version.major > 1 || version.minor >= cuda[i].since) &&
            tmsg_ucx_config_takes(keys, cuda[i].users)) {
            put_default(keys, cuda[i].name, NULL, cuda[i].value, cuda[i].why);
        }
    }
}

static void put_scope(const tmsg_ucx_scope_t *scope, tmsg_ucx_keys_t *keys)
{
    char rdma[128], devices[sizeof(scope->device) + sizeof(rdma)];

    if (scope->device[0] == '\0') {
        put_default(keys, "TLS", NULL,
                    choose_for_cuda("posix,cma,self", "posix,cma,self,cuda"),
                    "shared memory alone, so that UCX opens no port");
        return;
    }
    if (scope->named) {
        put_key(keys, "UCX_NET_DEVICES", scope->device, TMSG_ORIGIN_CODE,
                "the application named the devices");
    } else if (strcmp(scope->device, "all") != 0) {
        snprintf(devices, sizeof(devices), "%s%s", scope->device,
                 tmsg_netif_rdma("/sys", scope->device, rdma, sizeof(rdma)));
        put_default(keys, "NET_DEVICES", NULL, devices,
                    "UCX listens on the device of the address in use, no "
                    "other");
    }
    put_transports(scope, keys);
    put_address_family(scope, keys);
}

/* Refuses, by name, values on which some UCX aborts or corrupts memory. */
static tmsg_status_t check_dangerous(const tmsg_ucx_keys_t *keys)
{
    static const struct {
        const char *name;
        uint64_t most;
    } bounds[] = {
        {"UCX_TCP_TX_SEG_SIZE", 65536},
        {"UCX_TCP_RX_SEG_SIZE", 65536},
        {"UCX_POSIX_SEG_SIZE", 65535},
        {"UCX_TCP_MAX_IOV", 16},
    };
    const tmsg_ucx_key_t *proto = tmsg_ucx_config_key(keys, "UCX_PROTO_ENABLE");
    const tmsg_ucx_key_t *posix =
        tmsg_ucx_config_key(keys, "UCX_POSIX_SEG_SIZE");
    const tmsg_ucx_key_t *alloc = tmsg_ucx_config_key(keys, "UCX_POSIX_ALLOC");
    tmsg_ucx_version_t version = tmsg_ucx_version();

    for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++) {
        if (tmsg_ucx_config_bytes(keys, bounds[i].name) > bounds[i].most) {
            return tmsg_error_set(
                TMSG_ERR_UNSUPPORTED, "%s=%s: UCX aborts beyond %llu",
                bounds[i].name,
                tmsg_ucx_config_key(keys, bounds[i].name)->value,
                (unsigned long long)bounds[i].most);
        }
    }
    if (proto != NULL && proto->value[0] != 'n' && version.major == 1 &&
        version.minor < 16) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "UCX_PROTO_ENABLE=%s: UCX %u.%u aborts with it",
                              proto->value, version.major, version.minor);
    }
    if (alloc != NULL && strcmp(alloc->value, "md") != 0 && takes_prefixes()) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "UCX_POSIX_ALLOC=%s: UCX %u.%u may crash with "
                              "it, md is safe",
                              alloc->value, version.major, version.minor);
    }
    if (posix != NULL && tmsg_ucx_key_is_given(posix) && !takes_prefixes()) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "%s: UCX %u.%u takes UCX_POSIX_SEG_SIZE from "
                              "the environment alone",
                              tmsg_ucx_key_source(posix), version.major,
                              version.minor);
    }
    return TMSG_OK;
}

/* Returns whether a key's default is too large: UCX does not start if
 * TCP_TX_SEG_SIZE is above TCP_RX_SEG_SIZE. */
static bool is_too_large(const char *name, const tmsg_ucx_keys_t *keys)
{
    uint64_t taken = tmsg_ucx_config_bytes(keys, "UCX_TCP_RX_SEG_SIZE");

    return strcmp(name, "TCP_TX_SEG_SIZE") == 0 && taken != 0 &&
           taken < 60 * 1024;
}

tmsg_status_t tmsg_ucx_config_resolve(const tmsg_ucx_given_t *given,
                                      const tmsg_ucx_scope_t *scope,
                                      tmsg_ucx_keys_t *keys)
{
    tmsg_status_t status;

    keys->count = 0;
    keys->net_only = false;
    status = put_given(given, keys);
    if (status != TMSG_OK) {
        return status;
    }
    put_scope(scope, keys);
    keys->net_only = scope->net_only && has_network(transports_of(keys));
    put_backing(keys);
    put_cuda(keys);
    if (tmsg_fork_guard_inherits()) {
        put_default(
            keys, "RCACHE_ENABLE", NULL, "n",
            "a thread of the parent may have locked UCX's memory hooks");
    }
    for (size_t i = 0; i < DEFAULT_COUNT; i++) {
        const char *users = defaults[i].users;

        /* UCX complains of keys that no transport in use knows. */
        if (!tmsg_ucx_config_takes(keys, users) ||
            (users != NULL && has_word(users, "tcp", 3) && !has_device(keys))) {
            continue;
        }
        put_default(keys, defaults[i].name, defaults[i].inherit,
                    is_too_large(defaults[i].name, keys) ? NULL
                                                         : defaults[i].value,
                    defaults[i].why);
    }
    return check_dangerous(keys);
}

/* Returns the name by which this UCX takes a key in ucp_config_modify(). */
static const char *modify_name(const char *name)
{
    name += strlen("UCX_");
    for (size_t i = 0; i < DEFAULT_COUNT; i++) {
        if (defaults[i].plain != NULL && !takes_prefixes() &&
            strcmp(defaults[i].name, name) == 0) {
            return defaults[i].plain;
        }
    }
    return name;
}

bool tmsg_ucx_config_is_translated(const tmsg_ucx_key_t *key)
{
    return modify_name(key->name) != key->name + strlen("UCX_");
}

/* Returns the next word of a list of transports, as UCX is to be given it. "sm"
 * and "shm" become "mm": they stand for all shared memory, and "mm" is what is
 * left of it without cma. */
static const char *next_transport(const char **list, size_t *length_p)
{
    const char *word = *list + (**list == ',');

    *length_p = strcspn(word, ",");
    *list = word + *length_p;
    if (is_transport(word, *length_p, "sm") ||
        is_transport(word, *length_p, "shm")) {
        *length_p = strlen("mm");
        return "mm";
    }
    return word;
}

/* Writes the words of a list that are not in `unwanted`. */
static void list_without(const char *tls, const char *unwanted, char *text,
                         size_t bytes)
{
    size_t used = 0, length;

    text[0] = '\0';
    while (*tls != '\0' && used < bytes) {
        const char *word = next_transport(&tls, &length);

        if (!has_word(unwanted, word, length)) {
            used += (size_t)snprintf(text + used, bytes - used, "%s%.*s",
                                     used > 0 ? "," : "", (int)length, word);
        }
    }
}

/* Writes UCX_TLS without cma, which cma.h does instead: UCX's cma takes a read
 * that ended early for a complete one. */
static void leave_out_cma(const char *tls, char *text, size_t bytes)
{
    if (has_word(tls, "all", 3)) {
        snprintf(text, bytes, "^cma");
    } else if (tls[0] == '^') {
        snprintf(text, bytes, "%s,cma", tls);
    } else {
        list_without(tls, "cma", text, bytes);
    }
}

/* Returns UCX_TLS as UCX has read it from its own files, "all" if it is not
 * there. The caller frees it. NULL: no memory. */
static char *read_transports(const ucp_config_t *config)
{
    static const char name[] = "UCX_TLS=";
    char *text = NULL, *line;
    size_t bytes;
    FILE *stream = open_memstream(&text, &bytes);

    if (stream == NULL) {
        return NULL;
    }
    ucp_config_print(config, stream, NULL, UCS_CONFIG_PRINT_CONFIG);
    if (fclose(stream) != 0) {
        free(text);
        return NULL;
    }
    line = strstr(text, name);
    if (line == NULL) {
        free(text);
        return strdup("all");
    }
    line += strlen(name);
    line[strcspn(line, "\n")] = '\0';
    memmove(text, line, strlen(line) + 1);
    return text;
}

/* Writes UCX_TLS without shared memory. A list of UCX's own files may name
 * nothing else; it becomes "^sm". */
static void leave_out_memory(const char *tls, char *text, size_t bytes)
{
    if (tls[0] == '^') {
        snprintf(text, bytes, "%s,sm", tls);
    } else if (has_word(tls, "all", 3) || !has_network(tls)) {
        snprintf(text, bytes, "^sm");
    } else {
        list_without(tls, memory, text, bytes);
    }
}

/* Finds UCX_TLS in force, before anything is left out, in memory that the
 * caller frees. A value of UCX's own files is known only as far as UCX prints
 * it. */
static tmsg_status_t find_transports(const tmsg_ucx_keys_t *keys,
                                     const ucp_config_t *config, char **tls_p)
{
    bool known = tmsg_ucx_config_key(keys, "UCX_TLS") != NULL;
    char *tls = known ? strdup(transports_of(keys)) : read_transports(config);

    if (tls == NULL) {
        return tmsg_error_memory("UCX_TLS");
    }
    if (!known && strlen(tls) >= PRINTED_MOST) {
        free(tls);
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "UCX_TLS of UCX's own file has %d bytes or more: "
                              "set it in the environment",
                              PRINTED_MOST);
    }
    *tls_p = tls;
    return TMSG_OK;
}

static tmsg_status_t apply_transports(const tmsg_ucx_keys_t *keys,
                                      ucp_config_t *config)
{
    char *tls = NULL, *net, *text;
    size_t bytes;
    tmsg_status_t status = find_transports(keys, config, &tls);

    if (status != TMSG_OK) {
        return status;
    }
    bytes = strlen(tls) + sizeof("^sm,sm,cma");
    net = malloc(bytes);
    text = malloc(bytes);
    if (net == NULL || text == NULL) {
        status = tmsg_error_memory("UCX_TLS");
        goto out;
    }
    if (keys->net_only) {
        leave_out_memory(tls, net, bytes);
    } else {
        snprintf(net, bytes, "%s", tls);
    }
    leave_out_cma(net, text, bytes);
    if (text[0] != '\0') { /* else UCX says that cma alone carries nothing */
        (void)ucp_config_modify(config, "TLS", text);
    }
out:
    free(text);
    free(net);
    free(tls);
    return status;
}

tmsg_status_t tmsg_ucx_config_apply(const tmsg_ucx_keys_t *keys,
                                    tmsg_ucx_config_t **config_p)
{
    ucp_config_t *config;
    tmsg_status_t status;
    ucs_status_t ucs;

    tmsg_ucx_words_begin();
    ucs = ucp_config_read(NULL, NULL, &config);
    if (ucs != UCS_OK) {
        return tmsg_error_set(TMSG_ERR_INTERNAL, "ucp_config_read: %s",
                              ucs_status_string(ucs));
    }
    for (size_t i = 0; i < keys->count; i++) {
        const tmsg_ucx_key_t *key = &keys->keys[i];

        if (key->origin == TMSG_ORIGIN_ENVIRONMENT) {
            continue;
        }
        ucs = ucp_config_modify(config, modify_name(key->name), key->value);
        if (ucs == UCS_OK) {
            continue;
        }
        if (tmsg_ucx_key_is_given(key)) {
            ucp_config_release(config);
            return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "%s: %s=%s: %s",
                                  tmsg_ucx_key_source(key),
                                  key->name + strlen("UCX_"), key->value,
                                  ucs_status_string(ucs));
        }
        tmsg_log(TMSG_LOG_WARN, "this UCX does not take %s=%s (%s)", key->name,
                 key->value, ucs_status_string(ucs));
    }
    status = apply_transports(keys, config);
    if (status != TMSG_OK) {
        ucp_config_release(config);
        return status;
    }
    *config_p = config;
    return TMSG_OK;
}

/* Returns the power of two that a unit of UCX means; -1: it is no unit. */
static int shift_of(const char *unit)
{
    static const char letters[] = "bkmgt";
    const char *at;

    if (*unit == '\0') {
        return 0;
    }
    at = strchr(letters, *unit | 0x20);
    if (at == NULL || (unit[1] != '\0' &&
                       (at == letters || strcasecmp(unit + 1, "b") != 0))) {
        return -1;
    }
    return 10 * (int)(at - letters);
}

uint64_t tmsg_ucx_config_bytes(const tmsg_ucx_keys_t *keys, const char *name)
{
    const tmsg_ucx_key_t *key = tmsg_ucx_config_key(keys, name);
    long long number;
    char *unit;
    int shift;

    if (key == NULL) {
        return 0;
    }
    if (strcasecmp(key->value, "inf") == 0 ||
        strcasecmp(key->value, "auto") == 0) {
        return UINT64_MAX;
    }
    /* strtoll() returns its limit if the number exceeds it. */
    number = strtoll(key->value, &unit, 10);
    shift = unit == key->value ? -1 : shift_of(unit);
    if (shift < 0) {
        return 0; /* UCX refuses such a value */
    }
    if (number < 0 || (uint64_t)number > UINT64_MAX >> shift) {
        return UINT64_MAX;
    }
    return (uint64_t)number << shift;
}
