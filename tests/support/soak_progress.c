/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/soak_progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/must.h"

uint64_t soak_seed(void)
{
    static uint64_t seed;
    const char *text = getenv("TMSG_SOAK_SEED");

    if (seed == 0) {
        seed = text != NULL ? strtoull(text, NULL, 10) : 20261121;
        printf("seed %" PRIu64 "\n", seed);
    }
    return seed;
}

static void path_of(const char *name, char *path, size_t bytes)
{
    const char *folder = getenv("TMSG_SOAK_STATE");

    snprintf(path, bytes, "%s/%s.place", folder == NULL ? "." : folder, name);
}

uint64_t soak_place(const char *name)
{
    uint64_t slice = 0;
    char path[512];
    FILE *file;

    path_of(name, path, sizeof(path));
    file = fopen(path, "r");
    if (file != NULL) {
        if (fscanf(file, "%" SCNu64, &slice) != 1) {
            slice = 0;
        }
        fclose(file);
    }
    if (slice > 0) {
        printf("goes on at slice %" PRIu64 "\n", slice);
    }
    return slice;
}

void soak_keep(const char *name, uint64_t slice)
{
    char path[512];
    FILE *file;

    path_of(name, path, sizeof(path));
    file = fopen(path, "w");
    must_true(file != NULL);
    fprintf(file, "%" PRIu64 "\n", slice);
    must_eq(fclose(file), 0);
}
