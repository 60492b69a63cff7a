/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes the configuration file of --tune (docs/reference/configuration.md). */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "output.h"
#include "perf.h"

#define FILE_BYTES_MOST (1u << 20) /* the library's own limit */

/* Tells whether the library can read a file that is to be updated. */
static bool check_contents(const char *path)
{
    const tmsg_context_params_t params = {
        .field_mask = TMSG_CONTEXT_PARAM_CONFIG_FILE, .config_file = path};
    tmsg_context_t *context;

    if (tmsg_context_create(&params, &context) != TMSG_OK) {
        complain("%s", tmsg_error_message());
        return false;
    }
    tmsg_context_destroy(context);
    return true;
}

bool perf_folder_check(const char *path)
{
    char *folder = strdup(path);
    char *slash = folder == NULL ? NULL : strrchr(folder, '/');
    bool ok;

    if (slash != NULL) {
        slash[slash == folder ? 1 : 0] = '\0';
    }
    ok = folder != NULL &&
         access(slash == NULL ? "." : folder, W_OK | X_OK) == 0;
    if (!ok) {
        complain("%s: %s", path, strerror(errno));
    }
    free(folder);
    return ok;
}

bool perf_file_check(const perf_options_t *options)
{
    struct stat about;

    if (options->out == NULL) {
        return true;
    }
    if (stat(options->out, &about) != 0) {
        return perf_folder_check(options->out);
    }
    if (!S_ISREG(about.st_mode)) {
        complain("%s: not a regular file", options->out);
        return false;
    }
    if (!options->force && !options->update) {
        complain("%s: the file exists (--update changes its thresholds, "
                 "--force replaces it)",
                 options->out);
        return false;
    }
    return (!options->update || check_contents(options->out)) &&
           perf_folder_check(options->out);
}

static cJSON *load_config(const char *path)
{
    char *text = calloc(1, FILE_BYTES_MOST + 1);
    FILE *file = text == NULL ? NULL : fopen(path, "rbe");
    cJSON *config = NULL;

    if (file != NULL) {
        if (fread(text, 1, FILE_BYTES_MOST, file) > 0) {
            config = cJSON_ParseWithOpts(text, NULL, 1);
        }
        fclose(file);
    }
    free(text);
    if (!cJSON_IsObject(config)) {
        complain("%s: it cannot be read any more", path);
        cJSON_Delete(config);
        return NULL;
    }
    return config;
}

/* Reads the file again, because somebody may have changed it in the meantime,
 * or creates a new object. Returns NULL after a complaint. */
static cJSON *read_config(const perf_options_t *options)
{
    cJSON *config;

    if (options->update && access(options->out, F_OK) == 0) {
        return check_contents(options->out) ? load_config(options->out) : NULL;
    }
    config = cJSON_CreateObject();
    if (cJSON_AddNumberToObject(config, "version", 1) == NULL) {
        complain("out of memory");
        cJSON_Delete(config);
        return NULL;
    }
    return config;
}

static cJSON *object_in(cJSON *parent, const char *name)
{
    cJSON *object = cJSON_GetObjectItemCaseSensitive(parent, name);

    return object != NULL ? object : cJSON_AddObjectToObject(parent, name);
}

static bool merge_thresholds(cJSON *config, const cJSON *thresholds)
{
    cJSON *into = object_in(config, "thresholds");
    const cJSON *transport, *item;

    cJSON_ArrayForEach(transport, thresholds)
    {
        cJSON *of = into == NULL ? NULL : object_in(into, transport->string);

        cJSON_ArrayForEach(item, transport)
        {
            cJSON_DeleteItemFromObjectCaseSensitive(of, item->string);
            if (cJSON_AddNumberToObject(of, item->string, item->valuedouble) ==
                NULL) {
                return false;
            }
        }
    }
    return into != NULL;
}

/* cJSON writes integers of more than 31 bits with 15 digits, or in the form
 * 1e+10. This function replaces them by their full digits. */
static bool spell_numbers(cJSON *parent)
{
    for (cJSON *item = parent->child; item != NULL; item = item->next) {
        char digits[32];
        cJSON *raw;

        if (cJSON_IsObject(item) && !spell_numbers(item)) {
            return false;
        }
        if (!cJSON_IsNumber(item) || item->valuedouble < INT_MAX) {
            continue;
        }
        snprintf(digits, sizeof(digits), "%.0f", item->valuedouble);
        raw = cJSON_CreateRaw(digits);
        if (raw == NULL) {
            return false;
        }
        raw->string = item->string; /* the new item now owns the name */
        item->string = NULL;
        if (!cJSON_ReplaceItemViaPointer(parent, item, raw)) {
            cJSON_Delete(raw);
            return false;
        }
        item = raw;
    }
    return true;
}

static bool write_whole_text(int fd, const char *text)
{
    size_t bytes = strlen(text);

    while (bytes > 0) {
        ssize_t done = write(fd, text, bytes);

        if (done < 0 && errno != EINTR) {
            return false;
        }
        text += done < 0 ? 0 : done;
        bytes -= done < 0 ? 0 : (size_t)done;
    }
    return fsync(fd) == 0;
}

/* Gives the file the mode of the file that it replaces, or that of any new
 * file. */
static bool set_file_mode(int fd, const char *path)
{
    struct stat about;
    mode_t mask = umask(0);

    umask(mask);
    return fchmod(fd, stat(path, &about) == 0 ? about.st_mode & 07777
                                              : 0666 & ~mask) == 0;
}

static bool give_name(const perf_options_t *options, const char *temp,
                      const char *path)
{
    if (options->force || options->update) {
        return rename(temp, path) == 0;
    }
    if (renameat2(AT_FDCWD, temp, AT_FDCWD, path, RENAME_NOREPLACE) == 0) {
        return true;
    }
    return errno == EINVAL && link(temp, path) == 0 && unlink(temp) == 0;
}

/* Replaces the file at `path`. The path must not be a symbolic link: the file
 * it points to has to be replaced, not the link. */
static bool replace_file(const perf_options_t *options, const char *path,
                         const char *text)
{
    char *temp = NULL;
    bool ok;
    int fd;

    if (asprintf(&temp, "%s.XXXXXX", path) < 0) {
        errno = ENOMEM;
        return false;
    }
    fd = mkostemp(temp, O_CLOEXEC);
    ok = fd >= 0 && write_whole_text(fd, text) && set_file_mode(fd, path);
    if (fd >= 0 && close(fd) != 0) {
        ok = false;
    }
    if (ok && !give_name(options, temp, path)) {
        ok = false;
    }
    if (!ok && fd >= 0) {
        int error = errno;

        unlink(temp);
        errno = error;
    }
    free(temp);
    return ok;
}

static char *print_config(const perf_options_t *options,
                          const cJSON *thresholds)
{
    cJSON *config = read_config(options);
    char *text = NULL, *whole = NULL;

    if (config == NULL) {
        return NULL;
    }
    if (merge_thresholds(config, thresholds) && spell_numbers(config)) {
        text = cJSON_Print(config);
    }
    if (text == NULL || asprintf(&whole, "%s\n", text) < 0) {
        complain("out of memory");
        whole = NULL;
    }
    free(text);
    cJSON_Delete(config);
    return whole;
}

bool perf_file_write(const perf_options_t *options, const cJSON *thresholds)
{
    char *text = print_config(options, thresholds);
    char *path;
    bool ok;

    if (text == NULL) {
        return false;
    }
    if (options->out == NULL) {
        fputs(text, stdout);
        free(text);
        return output_flush();
    }
    path = realpath(options->out, NULL);
    ok = replace_file(options, path == NULL ? options->out : path, text);
    if (!ok) {
        complain("%s: %s%s", options->out, strerror(errno),
                 errno == EEXIST ? " (--force replaces it)" : "");
    }
    free(path);
    free(text);
    return ok;
}
