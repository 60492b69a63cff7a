/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/ucx/first.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "am/net/netif.h"

typedef int (*getifaddrs_fn)(struct ifaddrs **list_p);

/* Holds what the thread that opens UCX asks for. An empty device means
 * nothing. */
static _Thread_local struct {
    char device[IFNAMSIZ];
    struct in6_addr address;
} wanted;

/* The place where libucs has the address of getifaddrs(3). */
typedef struct {
    getifaddrs_fn *slot; /* NULL: not found */
    uintptr_t inside;    /* an address in the library, to find it by */
    /* The part that is read-only once it is relocated. */
    uintptr_t sealed, sealed_end;
} place_t;

/* `users` counts the threads that open UCX; while there are any, `place` is
 * where our function is. `lock` protects both. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned users;
static place_t place;

static bool entry_address(const struct ifaddrs *entry, struct in6_addr *address)
{
    return entry->ifa_addr != NULL &&
           tmsg_netif_ip(entry->ifa_addr, address, NULL);
}

static bool is_of_family(const struct in6_addr *one,
                         const struct in6_addr *other)
{
    return (IN6_IS_ADDR_V4MAPPED(one) != 0) ==
           (IN6_IS_ADDR_V4MAPPED(other) != 0);
}

bool tmsg_first_is(const char *device, const struct in6_addr *address)
{
    struct ifaddrs *list;
    bool found = false, first = true;

    if (getifaddrs(&list) != 0) {
        return true;
    }
    for (const struct ifaddrs *at = list; at != NULL && !found;
         at = at->ifa_next) {
        struct in6_addr its;

        if (strcmp(at->ifa_name, device) == 0 && entry_address(at, &its) &&
            is_of_family(&its, address) && !tmsg_netif_is_link_local(&its)) {
            found = true;
            first = memcmp(&its, address, sizeof(its)) == 0;
        }
    }
    freeifaddrs(list);
    return first;
}

/* Swaps two entries, except their names and links, which they do not own. */
static void swap_entries(struct ifaddrs *one, struct ifaddrs *other)
{
    struct ifaddrs kept = *one;

    *one = *other;
    one->ifa_next = kept.ifa_next;
    one->ifa_name = kept.ifa_name;
    kept.ifa_next = other->ifa_next;
    kept.ifa_name = other->ifa_name;
    *other = kept;
}

void tmsg_first_sort(struct ifaddrs *list, const char *device,
                     const struct in6_addr *address)
{
    struct ifaddrs *first = NULL, *found = NULL;

    for (struct ifaddrs *at = list; at != NULL; at = at->ifa_next) {
        struct in6_addr its;

        if (!tmsg_netif_is_of(at, device) || !entry_address(at, &its) ||
            !is_of_family(&its, address)) {
            continue;
        }
        if (first == NULL && strcmp(at->ifa_name, device) == 0) {
            first = at;
        }
        if (found == NULL && memcmp(&its, address, sizeof(its)) == 0) {
            found = at;
        }
    }
    if (first != NULL && found != NULL && first != found) {
        swap_entries(first, found);
    }
}

static int list_wanted_first(struct ifaddrs **list_p)
{
    int rc = getifaddrs(list_p);

    if (rc == 0 && wanted.device[0] != '\0') {
        tmsg_first_sort(*list_p, wanted.device, &wanted.address);
    }
    return rc;
}

#ifdef __LP64__

typedef struct {
    uintptr_t base;
    const ElfW(Sym) * symbols;
    const char *strings;
    const ElfW(Rela) * tables[2];
    size_t bytes[2];
} dynamic_t;

/* Returns the address that an entry of the dynamic section means. glibc has
 * relocated these pointers, other loaders have not. */
static uintptr_t loaded_pointer(uintptr_t base, uintptr_t value)
{
    return value < base ? base + value : value;
}

static void read_dynamic(uintptr_t base, const ElfW(Dyn) * entry,
                         dynamic_t *dynamic)
{
    *dynamic = (dynamic_t){.base = base};
    for (; entry->d_tag != DT_NULL; entry++) {
        const void *at = (const void *)loaded_pointer(base, entry->d_un.d_ptr);

        switch (entry->d_tag) {
        case DT_SYMTAB:
            dynamic->symbols = at;
            break;
        case DT_STRTAB:
            dynamic->strings = at;
            break;
        case DT_JMPREL:
            dynamic->tables[0] = at;
            break;
        case DT_PLTRELSZ:
            dynamic->bytes[0] = entry->d_un.d_val;
            break;
        case DT_RELA:
            dynamic->tables[1] = at;
            break;
        case DT_RELASZ:
            dynamic->bytes[1] = entry->d_un.d_val;
            break;
        default:
            break;
        }
    }
}

static getifaddrs_fn *find_getifaddrs_slot(const dynamic_t *dynamic)
{
    for (int i = 0; i < 2; i++) {
        const ElfW(Rela) *at = dynamic->tables[i];
        const ElfW(Rela) *end =
            at == NULL ? NULL : at + dynamic->bytes[i] / sizeof(*at);

        for (; at < end; at++) {
            const ElfW(Sym) *symbol =
                &dynamic->symbols[ELF64_R_SYM(at->r_info)];

            if (ELF64_R_SYM(at->r_info) != 0 && at->r_addend == 0 &&
                strcmp(dynamic->strings + symbol->st_name, "getifaddrs") == 0) {
                return (getifaddrs_fn *)(dynamic->base + at->r_offset);
            }
        }
    }
    return NULL;
}

static int look_into_library(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    place_t *search = arg;
    const ElfW(Dyn) *entries = NULL;
    dynamic_t dynamic;
    bool is_it = false;

    (void)bytes;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + part->p_vaddr;

        if (part->p_type == PT_LOAD) {
            is_it |= search->inside - begin < part->p_memsz;
        } else if (part->p_type == PT_DYNAMIC) {
            entries = (const void *)begin;
        } else if (part->p_type == PT_GNU_RELRO) {
            search->sealed = begin;
            search->sealed_end = begin + part->p_memsz;
        }
    }
    if (!is_it) {
        search->sealed = search->sealed_end = 0;
        return 0;
    }
    if (entries != NULL) {
        read_dynamic(info->dlpi_addr, entries, &dynamic);
        if (dynamic.symbols != NULL && dynamic.strings != NULL) {
            search->slot = find_getifaddrs_slot(&dynamic);
        }
    }
    return 1;
}

static bool put_function(const place_t *where, getifaddrs_fn function)
{
    uintptr_t at = (uintptr_t)where->slot;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    void *begin = (void *)(at & ~(page - 1));
    /* The loader seals whole pages: what ends within a page stays writable. */
    bool sealed = at >= (where->sealed & ~(page - 1)) &&
                  at < (where->sealed_end & ~(page - 1));

    if (sealed && mprotect(begin, page, PROT_READ | PROT_WRITE) != 0) {
        return false;
    }
    __atomic_store_n(where->slot, function, __ATOMIC_RELEASE);
    if (sealed) {
        mprotect(begin, page, PROT_READ);
    }
    return true;
}

static place_t find_getifaddrs(void)
{
    place_t found = {.inside =
                         (uintptr_t)dlsym(RTLD_DEFAULT, "ucs_netif_get_addr")};

    if (found.inside != 0) {
        dl_iterate_phdr(look_into_library, &found);
    }
    return found;
}

#else

static bool put_function(const place_t *where, getifaddrs_fn function)
{
    (void)where;
    (void)function;
    return false;
}

static place_t find_getifaddrs(void) { return (place_t){.slot = NULL}; }

#endif

bool tmsg_first_begin(const char *device, const struct in6_addr *address)
{
    bool is_there;

    memset(&wanted, 0, sizeof(wanted));
    memcpy(wanted.device, device, strnlen(device, sizeof(wanted.device) - 1));
    wanted.address = *address;
    pthread_mutex_lock(&lock);
    if (users++ == 0) {
        place = find_getifaddrs();
        if (place.slot != NULL && !put_function(&place, list_wanted_first)) {
            place.slot = NULL;
        }
    }
    is_there = place.slot != NULL;
    pthread_mutex_unlock(&lock);
    return is_there;
}

/* Returns the function that the loader would put there. The one that was there
 * before may belong to another copy of this library, which may have been
 * unloaded meanwhile. */
static getifaddrs_fn plain_getifaddrs(void)
{
    getifaddrs_fn function = getifaddrs;
    void *symbol = dlsym(RTLD_DEFAULT, "getifaddrs");

    if (symbol != NULL) {
        memcpy(&function, &symbol, sizeof(function));
    }
    return function;
}

/* Our function does not stay there: its library may be unloaded before libucs
 * is. */
void tmsg_first_end(void)
{
    wanted.device[0] = '\0';
    pthread_mutex_lock(&lock);
    if (--users == 0 && place.slot != NULL) {
        if (*place.slot == list_wanted_first) {
            put_function(&place, plain_getifaddrs());
        }
        place.slot = NULL;
    }
    pthread_mutex_unlock(&lock);
}
