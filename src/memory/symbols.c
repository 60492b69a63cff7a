/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory/symbols.h"

#include <dlfcn.h>
#include <string.h>

static tmsg_symbol_fn find_symbol(const tmsg_symbol_t *symbol,
                                  tmsg_symbol_lookup_fn lookup, void *arg)
{
    for (size_t i = 0; i < TMSG_SYMBOL_VERSIONS; i++) {
        const tmsg_symbol_version_t *version = &symbol->versions[i];
        tmsg_symbol_fn found =
            version->symbol == NULL ? NULL : lookup(arg, symbol, version);

        if (found != NULL && version->adapter != NULL) {
            *version->raw = found;
            return version->adapter;
        }
        if (found != NULL) {
            return found;
        }
    }
    return NULL;
}

const tmsg_symbol_t *tmsg_symbols_fill(const tmsg_symbol_t *symbols,
                                       size_t count,
                                       tmsg_symbol_lookup_fn lookup, void *arg,
                                       void *target)
{
    const tmsg_symbol_t *missing = NULL;

    for (size_t i = 0; i < count; i++) {
        tmsg_symbol_fn found = find_symbol(&symbols[i], lookup, arg);

        memcpy((char *)target + symbols[i].slot, &found, sizeof(found));
        if (found == NULL && symbols[i].required && missing == NULL) {
            missing = &symbols[i];
        }
    }
    return missing;
}

tmsg_symbol_fn tmsg_symbols_dlsym(void *arg, const tmsg_symbol_t *symbol,
                                  const tmsg_symbol_version_t *version)
{
    void *found = dlsym(arg, version->symbol);
    tmsg_symbol_fn fn;

    (void)symbol;
    /* C has no cast from a data pointer to a function pointer. */
    memcpy(&fn, &found, sizeof(fn));
    return fn;
}
