/* SPDX-License-Identifier: BSD-3-Clause */
/* memory/symbols.h - functions of a library that is opened at run time.
 *
 * One table lists the functions. A function may have several versions, each
 * under a symbol of its own; the newest version found is taken. A version whose
 * signature differs from the slot has an adapter. The slot then holds the
 * adapter, which calls the version through `raw`. */
#ifndef TMSG_MEMORY_SYMBOLS_H
#define TMSG_MEMORY_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>

typedef void (*tmsg_symbol_fn)(void);

#define TMSG_SYMBOL_VERSIONS 3

typedef struct {
    const char *symbol; /* NULL after the last version */
    int version;        /* library version that introduced the symbol */
    tmsg_symbol_fn adapter;
    tmsg_symbol_fn *raw;
} tmsg_symbol_version_t;

typedef struct {
    const char *name;
    size_t slot; /* offset of the pointer in the target structure */
    bool required;
    tmsg_symbol_version_t versions[TMSG_SYMBOL_VERSIONS]; /* newest first */
} tmsg_symbol_t;

/* Looks up one version. Returns NULL if the library lacks it. */
typedef tmsg_symbol_fn (*tmsg_symbol_lookup_fn)(
    void *arg, const tmsg_symbol_t *symbol,
    const tmsg_symbol_version_t *version);

/* Fills the slots in `target`; a slot is NULL if its function is not found.
 * Returns the first required function that is not found, or NULL if none is
 * missing. */
const tmsg_symbol_t *tmsg_symbols_fill(const tmsg_symbol_t *symbols,
                                       size_t count,
                                       tmsg_symbol_lookup_fn lookup, void *arg,
                                       void *target);

/* Looks up one version by dlsym(). `arg` is the handle of the library. */
tmsg_symbol_fn tmsg_symbols_dlsym(void *arg, const tmsg_symbol_t *symbol,
                                  const tmsg_symbol_version_t *version);

#endif
