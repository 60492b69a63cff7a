/* SPDX-License-Identifier: BSD-3-Clause */
/* memory/symbols.h - functions of a library that is opened at run time.
 *
 * What is needed of it is one table. A function may have several versions,
 * each under a symbol of its own: the newest that is there is taken. One of
 * another shape than the slot has an adapter, which takes its place and calls
 * it through `raw`. */
#ifndef TMSG_MEMORY_SYMBOLS_H
#define TMSG_MEMORY_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>

typedef void (*tmsg_symbol_fn)(void);

#define TMSG_SYMBOL_VERSIONS 3

typedef struct {
    const char *symbol; /* NULL behind the last */
    int version;        /* of the library that brought this one */
    tmsg_symbol_fn adapter;
    tmsg_symbol_fn *raw;
} tmsg_symbol_version_t;

typedef struct {
    const char *name;
    size_t slot; /* offset of the pointer in the structure that is filled */
    bool required;
    tmsg_symbol_version_t versions[TMSG_SYMBOL_VERSIONS]; /* newest first */
} tmsg_symbol_t;

/* Looks one version up, or answers NULL. */
typedef tmsg_symbol_fn (*tmsg_symbol_lookup_fn)(
    void *arg, const tmsg_symbol_t *symbol,
    const tmsg_symbol_version_t *version);

/* Fills the slots in `target`; what is not found is NULL. Returns the first
 * required one that is not, or NULL: all are there. */
const tmsg_symbol_t *tmsg_symbols_fill(const tmsg_symbol_t *symbols,
                                       size_t count,
                                       tmsg_symbol_lookup_fn lookup, void *arg,
                                       void *target);

/* A lookup by dlsym(); `arg` is the library's handle. */
tmsg_symbol_fn tmsg_symbols_dlsym(void *arg, const tmsg_symbol_t *symbol,
                                  const tmsg_symbol_version_t *version);

#endif
