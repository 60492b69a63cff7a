/* SPDX-License-Identifier: BSD-3-Clause */
/* store.h - the folder of a receiver: names, memory, files. */
#ifndef TMSG_STORE_H
#define TMSG_STORE_H

#include "tool.h"

typedef struct {
    const char *dir; /* NULL: nothing is kept */
    bool force;      /* existing files are replaced */
    unsigned unnamed;
} store_t;

/* Makes the folder if it is missing. False after a complaint. */
bool store_open_dir(const char *dir);

/* Memory of the worker for payloads: large ones lie in a file of the folder
 * that has no name, so that they take page cache instead of memory. */
tmsg_allocator_t store_allocator(store_t *store);

/* Whether a file of that name and size would be taken; if not, `why` says so.
 * NULL is no name or format. */
bool store_would_take(const store_t *store, const char *name,
                      const char *format, uint64_t bytes, char *why,
                      size_t why_bytes);

/* Writes a map into the folder, and the path that it got into *path_p (freed
 * with free()). On failure `why` says which and why. */
bool store_save(store_t *store, const tmsg_map_t *map, char **path_p, char *why,
                size_t why_bytes);

/* DIR/<stem>-000001.<extension>, the first from *last_p + 1 on that does not
 * exist (with `force` the next). Freed with free(); NULL without memory. */
char *store_numbered(const char *dir, const char *stem, const char *extension,
                     bool force, unsigned *last_p);

#endif
