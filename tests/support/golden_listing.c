/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/golden_listing.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES_MAX 1048576

/* The number of a hex digit, or -1. */
static int digit_of(int c)
{
    const char *digits = "0123456789abcdef";
    const char *at = c == '\0' ? NULL : strchr(digits, c);

    return at == NULL ? -1 : (int)(at - digits);
}

uint8_t *golden_unhex(const char *text, size_t *size_p)
{
    uint8_t *bytes = malloc(strlen(text) / 2 + 1), *exact;
    size_t digits = 0;

    while (*text != '\0') {
        int digit = digit_of(*text);

        if (*text == '#') {
            text += strcspn(text, "\n");
            continue;
        }
        if (digit >= 0) {
            int high = digits % 2 ? bytes[digits / 2] << 4 : 0;

            bytes[digits++ / 2] = (uint8_t)(high | digit);
        }
        text++;
    }
    *size_p = digits / 2;
    exact = malloc(*size_p);
    memcpy(exact, bytes, *size_p);
    free(bytes);
    return exact;
}

char *golden_read(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, FILE_BYTES_MAX);

    if (file == NULL) {
        perror(path);
        abort();
    }
    if (fread(text, 1, FILE_BYTES_MAX - 1, file) == 0) {
        abort();
    }
    fclose(file);
    return text;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const golden_t *)a)->path, ((const golden_t *)b)->path);
}

size_t golden_load(const char *folder, golden_t *cases)
{
    const char *root = getenv("TMSG_SOURCE_DIR");
    char path[512];
    size_t count = 0;
    DIR *dir;

    snprintf(path, sizeof(path), "%s/tests/golden/%s", root ? root : ".",
             folder);
    dir = opendir(path);
    if (dir == NULL) {
        perror(path);
        abort();
    }
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char *dot = strrchr(entry->d_name, '.'), file[1024];
        golden_t *golden = &cases[count];
        char *text;

        if (dot == NULL || strcmp(dot, ".hex") != 0) {
            continue;
        }
        if (count == GOLDEN_CASES_MAX) {
            fprintf(stderr, "%s: more than %d cases\n", path, GOLDEN_CASES_MAX);
            abort();
        }
        snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
        text = golden_read(file);
        snprintf(golden->path, sizeof(golden->path), "%.*s",
                 (int)(strlen(file) - 4), file);
        sscanf(text, "# %127[^\n]", golden->remark);
        golden->bytes = golden_unhex(text, &golden->size);
        free(text);
        count++;
    }
    closedir(dir);
    if (count == 0) {
        fprintf(stderr, "%s: no cases\n", path);
        abort();
    }
    qsort(cases, count, sizeof(*cases), by_path);
    return count;
}

void golden_free(golden_t *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(cases[i].bytes);
    }
}
