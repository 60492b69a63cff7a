/* SPDX-License-Identifier: BSD-3-Clause */
/* store.h - the folder of a receiver: names, memory, files. */
#ifndef TMSG_STORE_H
#define TMSG_STORE_H

#include "tool.h"

typedef struct {
    const char *dir; /* the folder; NULL means that nothing is kept */
    bool force;      /* replace existing files */
    unsigned unnamed;
} store_t;

/* Creates the folder if it is missing. Returns false after a complaint. */
bool store_open_dir(const char *dir);

/* Returns an allocator for the payloads of a worker. Large payloads lie in an
 * unnamed file of the folder, so that they use page cache and not memory.
 * `store` must outlive the worker. */
tmsg_allocator_t store_allocator(store_t *store);

/* Tells whether the folder takes a file of that name and size. If not, `why`
 * tells the reason. `name` or `format` is NULL if the sender gave none. */
bool store_would_take(const store_t *store, const char *name,
                      const char *format, uint64_t bytes, char *why,
                      size_t why_bytes);

/* Writes a map into the folder. On success *path_p is the path of the file; the
 * caller frees it with free(). On failure `why` names the file and the
 * reason. */
bool store_save(store_t *store, const tmsg_map_t *map, char **path_p, char *why,
                size_t why_bytes);

/* Returns DIR/<stem>-000001.<extension>: the first such path, counting from
 * *last_p + 1, that does not exist. With `force` it returns the next path in
 * any case. Stores the number in *last_p. The caller frees the path with
 * free(). Returns NULL if there is no memory. */
char *store_numbered(const char *dir, const char *stem, const char *extension,
                     bool force, unsigned *last_p);

#endif
