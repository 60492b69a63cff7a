/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/ucx/ucx_config.h"

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
#include "core/error.h"
#include "core/log.h"
#include "memory/domain.h"

/* The keys we set, and those that we must know of. Up to UCX 1.16
 * ucp_config_modify() takes a transport's key without its prefix, later with
 * it; the environment's has it in all. */
static const struct {
    const char *name;    /* prefixed, without UCX_ */
    const char *plain;   /* as 1.16 and older take it; NULL: the same */
    const char *inherit; /* what UCX reads where `name` is not set, or NULL */
    const char *value;   /* our default; NULL: not ours to set */
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
    /* A listener of another family overflows UCX's heap. */
    {"TCP_AF_PRIO", "AF_PRIO", NULL, NULL, NULL, NULL},
    /* Both ends must agree on it. */
    {"POSIX_SEG_SIZE", NULL, "MM_SEG_SIZE", NULL, NULL, NULL},
    /* What must be free there (backing.h). */
    {"POSIX_DIR", "DIR", NULL, NULL, NULL, NULL},
    /* Some values of these are deadly. */
    {"TCP_MAX_IOV", "MAX_IOV", NULL, NULL, NULL, NULL},
    {"PROTO_ENABLE", NULL, NULL, NULL, NULL, NULL},
};

#define DEFAULT_COUNT (sizeof(defaults) / sizeof(defaults[0]))

/* Keys that the application may set: all others must have room, too. */
#define GIVEN_MOST 40

#define PRINTED_MOST 127 /* bytes of a value that UCX prints */

static const char *const origin_names[] = {"default", "environment", "code",
                                           "file"};

/* UCX 1.13 takes SIGSEGV and its kin when it is loaded. They are given back
 * here, before main(), unless the user configured that handling; later would
 * undo what the application set up since. */
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
           one->named == other->named && one->family == other->family &&
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

static void put(tmsg_ucx_keys_t *keys, const char *name, const char *value,
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

/* What the user's environment says of a key: by its full name, or by the one
 * that UCX inherits it from. */
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

/* What the environment says; else `value`, unless it is NULL. A key that is
 * set already stays. */
static void put_behind(tmsg_ucx_keys_t *keys, const char *full,
                       const char *inherit, const char *value,
                       tmsg_ucx_origin_t origin, const char *why)
{
    const char *environment = from_environment(full, inherit);

    if (tmsg_ucx_config_key(keys, full) != NULL) {
        return;
    }
    if (environment != NULL) {
        put(keys, full, environment, TMSG_ORIGIN_ENVIRONMENT, NULL);
    } else if (value != NULL) {
        put(keys, full, value, origin, why);
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

/* Whether a comma-separated list has a word. */
static bool lists(const char *list, const char *word, size_t length)
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

/* UCX_TLS in force, in full where a key holds a part of it. */
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

    if (keys->net_only && users != NULL && lists(users, "sm", 2)) {
        return false;
    }
    if (users == NULL || lists(tls, "all", 3)) {
        return true;
    }
    while (*users != '\0' && !named) {
        size_t length = strcspn(users, ",");

        named = lists(tls + except, users, length);
        users += length + (users[length] == ',');
    }
    return named != except;
}

/* Whether UCX_NET_DEVICES names a device of the kernel's that is here, which
 * tcp needs. */
static bool has_device(const tmsg_ucx_keys_t *keys)
{
    const tmsg_ucx_key_t *key = tmsg_ucx_config_key(keys, "UCX_NET_DEVICES");
    const char *list = key == NULL ? "all" : key->value;
    char name[IFNAMSIZ];

    if (list[0] == '^' || lists(list, "all", 3)) {
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

/* The application may write a transport's key with its prefix, without, or as
 * that of its family: it is one key all the same. */
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
        put(keys, full_name(key.name, full, sizeof(full)), key.value,
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

/* A UCX that was built with CUDA has a plug-in for it, in the folder "ucx"
 * beside itself. */
static bool has_plugin(const char *library)
{
    const char *end = strrchr(library, '/');
    char path[PATH_MAX];

    return end != NULL &&
           (size_t)snprintf(path, sizeof(path), "%.*s/ucx/libuct_cuda.so.0",
                            (int)(end - library), library) < sizeof(path) &&
           access(path, R_OK) == 0;
}

/* Lists of transports have those of CUDA where a process that uses it has a UCX
 * that knows it; another UCX would complain of them. */
static const char *list(const char *without, const char *with)
{
    Dl_info info;
    void *symbol = dlsym(RTLD_DEFAULT, "ucp_worker_progress");

    return symbol != NULL && tmsg_cuda_is_loaded() &&
                   dladdr(symbol, &info) != 0 && info.dli_fname != NULL &&
                   has_plugin(info.dli_fname) && tmsg_cuda_is_ready()
               ? with
               : without;
}

/* What dies amid a write to shared memory blocks it, and UCXX's peers give no
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
                    loopback
                        ? list("posix,cma,self,tcp", "posix,cma,self,tcp,cuda")
                        : NULL,
                    "what works on this machine");
    }
}

/* The other family stays for devices that are named and have that alone. */
static void put_family(const tmsg_ucx_scope_t *scope, tmsg_ucx_keys_t *keys)
{
    if (scope->family == 0 && tmsg_ucx_scope_has_address(scope) &&
        !IN6_IS_ADDR_V4MAPPED(&scope->address) &&
        tmsg_ucx_config_takes(keys, "tcp") && has_device(keys)) {
        put_default(keys, "TCP_AF_PRIO", NULL, "inet6,inet",
                    "the address in use is an IPv6 one");
    }
}

/* Whether a transport reaches other processes, by the network. */
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

/* Whether UCX_TLS leaves a network when shared memory is left out. */
static bool has_network(const char *tls)
{
    bool network = tls[0] == '^' || lists(tls, "all", 3);

    while (*tls != '\0' && !network) {
        size_t length = strcspn(tls, ",");

        network = !lists(memory, tls, length) && is_network(tls, length);
        tls += length + (tls[length] == ',');
    }
    return network;
}

/* UCX's pools of shared memory take theirs from wherever ALLOC says, the
 * backing file system first; and 1.19 and later crash where that is another.
 * They do not look there below SHM_MIN_SIZE of free memory. */
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
    put_default(keys, "ALLOC_PRIO", NULL, list("thp,mmap,heap,md:*", NULL),
                "UCX's own buffers, 8 MiB, are no shared memory");
}

static void put_scope(const tmsg_ucx_scope_t *scope, tmsg_ucx_keys_t *keys)
{
    char rdma[128], devices[sizeof(scope->device) + sizeof(rdma)];

    if (scope->device[0] == '\0') {
        put_default(keys, "TLS", NULL,
                    list("posix,cma,self", "posix,cma,self,cuda"),
                    "shared memory alone, so that UCX opens no port");
        return;
    }
    if (scope->named) {
        put(keys, "UCX_NET_DEVICES", scope->device, TMSG_ORIGIN_CODE,
            "the application named the devices");
    } else if (strcmp(scope->device, "all") != 0) {
        snprintf(devices, sizeof(devices), "%s%s", scope->device,
                 tmsg_netif_rdma("/sys", scope->device, rdma, sizeof(rdma)));
        put_default(keys, "NET_DEVICES", NULL, devices,
                    "UCX listens on the device of the address in use, no "
                    "other");
    }
    put_transports(scope, keys);
    put_family(scope, keys);
}

/* Values that some UCX aborts or corrupts memory on are refused by name. */
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

/* UCX does not start with a TCP_TX_SEG_SIZE above the TCP_RX_SEG_SIZE. */
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
    for (size_t i = 0; i < DEFAULT_COUNT; i++) {
        const char *users = defaults[i].users;

        /* UCX complains on standard output of keys that nobody uses. */
        if (!tmsg_ucx_config_takes(keys, users) ||
            (users != NULL && lists(users, "tcp", 3) && !has_device(keys))) {
            continue;
        }
        put_default(keys, defaults[i].name, defaults[i].inherit,
                    is_too_large(defaults[i].name, keys) ? NULL
                                                         : defaults[i].value,
                    defaults[i].why);
    }
    return check_dangerous(keys);
}

/* The name by which this UCX takes a key in ucp_config_modify(). */
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

/* The next word of a list of transports, and what UCX is given for it: "sm" and
 * "shm" are all of shared memory, "mm" is what is left of it. */
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

/* The words of a list that are none of some unwanted. */
static void list_without(const char *tls, const char *unwanted, char *text,
                         size_t bytes)
{
    size_t used = 0, length;

    text[0] = '\0';
    while (*tls != '\0' && used < bytes) {
        const char *word = next_transport(&tls, &length);

        if (!lists(unwanted, word, length)) {
            used += (size_t)snprintf(text + used, bytes - used, "%s%.*s",
                                     used > 0 ? "," : "", (int)length, word);
        }
    }
}

/* UCX_TLS as it is without cma, which is left to cma.h: UCX's takes a read that
 * ended early for the whole. */
static void leave_out_cma(const char *tls, char *text, size_t bytes)
{
    if (lists(tls, "all", 3)) {
        snprintf(text, bytes, "^cma");
    } else if (tls[0] == '^') {
        snprintf(text, bytes, "%s,cma", tls);
    } else {
        list_without(tls, "cma", text, bytes);
    }
}

/* What UCX has read of its own files. Freed by the caller; NULL: no memory. */
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

/* UCX_TLS as it is without shared memory; of a list of UCX's own files that has
 * nothing else, all that there is. */
static void leave_out_memory(const char *tls, char *text, size_t bytes)
{
    if (tls[0] == '^') {
        snprintf(text, bytes, "%s,sm", tls);
    } else if (lists(tls, "all", 3) || !has_network(tls)) {
        snprintf(text, bytes, "^sm");
    } else {
        list_without(tls, memory, text, bytes);
    }
}

/* As it is in force, before anything is left out. Only what is of UCX's own
 * files is not known in full. */
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
    ucs_status_t ucs = ucp_config_read(NULL, NULL, &config);

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

/* The power of two that a unit of UCX's means; -1 if it is none. */
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
    number = strtoll(key->value, &unit, 10); /* at its end where it exceeds */
    shift = unit == key->value ? -1 : shift_of(unit);
    if (shift < 0) {
        return 0; /* UCX takes none of these */
    }
    if (number < 0 || (uint64_t)number > UINT64_MAX >> shift) {
        return UINT64_MAX;
    }
    return (uint64_t)number << shift;
}
