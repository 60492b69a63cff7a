/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg dump: prints a tensor file, or a captured header, as JSON. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fault.h"
#include "options.h"
#include "show.h"

static const struct argp_option option_list[] = {
    {"table", 't', NULL, 0,
     "A line a tensor instead, with the checksum of its elements", 0},
    {0},
};

typedef struct {
    const char *path;
    bool table;
} options_t;

static error_t parse_dump_option(int key, char *arg, struct argp_state *state)
{
    options_t *options = state->input;

    switch (key) {
    case 't':
        options->table = true;
        return 0;
    case ARGP_KEY_ARG:
        if (options->path != NULL) {
            return ARGP_ERR_UNKNOWN;
        }
        options->path = arg;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "the FILE to look at is missing");
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp parser = {
    .options = option_list,
    .parser = parse_dump_option,
    .args_doc = "FILE",
    .doc = "Print what is in a .safetensors, .npz or .npy file, or in the "
           "header of a message (.tmsg, from recv --capture).",
};

/* A header is small. The limit keeps a large file with that ending from being
 * read as a whole. */
static char *read_file(const char *path, size_t *bytes_p)
{
    size_t room = 1 << 16, bytes = 0;
    char *data = NULL, *bigger;
    FILE *file = fopen(path, "rbe");

    while (file != NULL && (bigger = realloc(data, room)) != NULL) {
        data = bigger;
        bytes += fread(data + bytes, 1, room - bytes, file);
        if (bytes < room || room >= 1u << 30) {
            break;
        }
        room *= 2;
    }
    if (file == NULL || ferror(file)) {
        complain("%s: %s", path, strerror(errno));
        free(data);
        data = NULL;
    }
    if (file != NULL) {
        fclose(file);
    }
    *bytes_p = bytes;
    return data;
}

static int dump_header(const char *path)
{
    size_t bytes;
    char *header = read_file(path, &bytes);
    char *json;

    if (header == NULL) {
        return EXIT_USAGE;
    }
    if (tmsg_header_to_json(header, bytes, &json) != TMSG_OK) {
        complain("%s: %s", path, tmsg_error_message());
        free(header);
        return EXIT_USAGE;
    }
    put_json(stdout, json);
    putchar('\n');
    tmsg_string_free(json);
    free(header);
    return EXIT_DONE;
}

static bool print_map(const tmsg_map_t *map, bool table)
{
    digest_t digest;
    char *json;

    if (table) {
        if (digest_map(map, true, &digest) != TMSG_OK) {
            return false;
        }
        show_table(stdout, map, &digest);
        free(digest.sums);
        return true;
    }
    if (tmsg_map_to_json(map, &json) != TMSG_OK) {
        return false;
    }
    put_json(stdout, json);
    putchar('\n');
    tmsg_string_free(json);
    return true;
}

int dump_main(int argc, char **argv)
{
    options_t options = {0};
    const char *changed;
    tmsg_map_t *map;
    bool printed;

    parse_command(&parser, 0, argc, argv, &options, NULL);
    if (ends_with(options.path, ".tmsg")) {
        if (options.table) {
            complain("%s: a header has no elements to sum: --table is for "
                     "tensor files",
                     options.path);
            return EXIT_USAGE;
        }
        return dump_header(options.path);
    }
    fault_watch(options.path);
    if (tmsg_file_load(options.path, NULL, &map) != TMSG_OK) {
        complain("%s", tmsg_error_message());
        return EXIT_USAGE;
    }
    printed = print_map(map, options.table);
    changed = fault_changed(NULL);
    if (!printed || changed != NULL) {
        complain("%s: %s", options.path,
                 changed != NULL ? changed : tmsg_error_message());
    }
    tmsg_map_destroy(map);
    return printed && changed == NULL ? EXIT_DONE : EXIT_FAILED;
}
