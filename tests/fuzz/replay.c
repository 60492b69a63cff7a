/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs a fuzz target over every file of a folder, without a fuzzer. A folder
 * that is missing or empty is a failure: a target has one input at least. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The buffer is exactly as long as the input, so that ASan sees one byte too
 * many being read. */
static int replay(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        return -1;
    }
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file);
    rewind(file);
    uint8_t *data = malloc(size);
    int rc = -1;
    if ((data != NULL || size == 0) && fread(data, 1, size, file) == size) {
        rc = 0;
        LLVMFuzzerTestOneInput(data, size);
    }
    free(data);
    fclose(file);
    return rc;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    LLVMFuzzerTestOneInput(NULL, 0);
    DIR *dir = opendir(argv[1]);
    if (dir == NULL) {
        perror(argv[1]);
        return 1;
    }
    int rc = 0;
    unsigned count = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] == '.') {
            continue;
        }
        rc |= replay(argv[1], entry->d_name);
        count++;
    }
    closedir(dir);
    printf("%u inputs\n", count);
    return rc == 0 && count > 0 ? 0 : 1;
}
