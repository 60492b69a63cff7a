/* SPDX-License-Identifier: BSD-3-Clause */
#include "values.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/shown.h"
#include "fault.h"

#define NDIM_MOST 64

/* Holds a number, a list, or a list of lists while it is being read. */
typedef struct {
    const char *word; /* the whole argument, for complaints */
    const char *at;
    tmsg_dtype_t dtype;
    int64_t shape[NDIM_MOST];
    int32_t ndim;
    unsigned char *data;
    size_t count, room; /* in elements */
} literal_t;

static bool complain_literal(const literal_t *literal, const char *why)
{
    complain("'%s': %s", tmsg_shown_short(literal->word).text, why);
    return false;
}

static size_t element_bytes(const literal_t *literal)
{
    return literal->dtype.bits / 8;
}

/* Tells whether a C type exists for numbers of that dtype. */
static bool is_plain(tmsg_dtype_t dtype)
{
    return dtype.lanes == 1 && dtype.bits >= 8 &&
           (dtype.code == TMSG_DTYPE_INT || dtype.code == TMSG_DTYPE_UINT ||
            dtype.code == TMSG_DTYPE_BOOL ||
            (dtype.code == TMSG_DTYPE_FLOAT && dtype.bits >= 32));
}

static bool is_literal_word(const char *at, const char *word)
{
    size_t bytes = strlen(word);

    return strncmp(at, word, bytes) == 0 &&
           (at[bytes] == '\0' || strchr(",] \t:", at[bytes]) != NULL);
}

static bool put_element(literal_t *literal, const void *value)
{
    size_t bytes = element_bytes(literal);

    if (literal->count == literal->room) {
        size_t room = literal->room == 0 ? 16 : literal->room * 2;
        void *grown = realloc(literal->data, room * bytes);

        if (grown == NULL) {
            return complain_literal(literal, "out of memory");
        }
        literal->data = grown;
        literal->room = room;
    }
    memcpy(literal->data + literal->count++ * bytes, value, bytes);
    return true;
}

static bool put_literal_integer(literal_t *literal, char **end)
{
    bool negative = *literal->at == '-';
    bool is_unsigned = literal->dtype.code == TMSG_DTYPE_UINT;
    int bits = literal->dtype.bits;
    unsigned long long value;
    long long number;

    errno = 0;
    if (is_unsigned) {
        value = strtoull(literal->at, end, 10);
        if (errno != 0 || (negative && value != 0) ||
            (bits < 64 && value >> bits != 0)) {
            return complain_literal(literal,
                                    "a number that the dtype does not have");
        }
        /* The first bytes of the value are the element: the machine is
         * little-endian. */
        return put_element(literal, &value);
    }
    number = strtoll(literal->at, end, 10);
    if (errno != 0 || (bits < 64 && (number < -(1LL << (bits - 1)) ||
                                     number >= 1LL << (bits - 1)))) {
        return complain_literal(literal,
                                "a number that the dtype does not have");
    }
    return put_element(literal, &number);
}

static bool put_literal_number(literal_t *literal)
{
    char *end = NULL;
    bool good;

    if (literal->dtype.code == TMSG_DTYPE_BOOL) {
        unsigned char truth = is_literal_word(literal->at, "true");

        if (!truth && !is_literal_word(literal->at, "false")) {
            return complain_literal(literal, "neither true nor false");
        }
        literal->at += truth ? 4 : 5;
        return put_element(literal, &truth);
    }
    if (literal->dtype.code == TMSG_DTYPE_FLOAT) {
        double value = strtod(literal->at, &end);
        float single = (float)value;

        good = end == literal->at ||
               put_element(literal, literal->dtype.bits == 32 ? (void *)&single
                                                              : (void *)&value);
    } else {
        good = put_literal_integer(literal, &end);
    }
    if (!good) {
        return false;
    }
    if (end == literal->at ||
        (*end != '\0' && strchr(",] \t:", *end) == NULL)) {
        return complain_literal(literal, "not a number of that dtype");
    }
    literal->at = end;
    return true;
}

static void skip_literal_space(literal_t *literal)
{
    literal->at += strspn(literal->at, " \t");
}

/* Reads what is `depth` brackets deep. The first list of each depth determines
 * the length of the others. */
static bool read_level(literal_t *literal, int32_t depth)
{
    int64_t length = 0;

    skip_literal_space(literal);
    if (*literal->at != '[') {
        if (literal->ndim >= 0 && depth != literal->ndim) {
            return complain_literal(literal, "lists and numbers in one list");
        }
        literal->ndim = depth;
        return put_literal_number(literal);
    }
    if (depth == NDIM_MOST || (literal->ndim >= 0 && depth >= literal->ndim)) {
        return complain_literal(literal, depth == NDIM_MOST
                                             ? "more than 64 brackets"
                                             : "lists and numbers in one list");
    }
    do {
        literal->at++; /* skips '[' or ',' */
        skip_literal_space(literal);
        if (length == 0 && *literal->at == ']') {
            literal->ndim = literal->ndim < 0 ? depth + 1 : literal->ndim;
            break;
        }
        if (!read_level(literal, depth + 1)) {
            return false;
        }
        length++;
        skip_literal_space(literal);
    } while (*literal->at == ',');
    if (*literal->at++ != ']') {
        return complain_literal(literal, "a list that does not end in ']'");
    }
    if (literal->shape[depth] >= 0 && literal->shape[depth] != length) {
        return complain_literal(literal, "lists of different lengths");
    }
    literal->shape[depth] = length;
    return true;
}

/* Guesses the dtype from the text. A point, an exponent, "inf" or "nan" makes
 * it a float. */
static tmsg_dtype_t guess_dtype(const char *text, size_t bytes)
{
    tmsg_dtype_t dtype = {TMSG_DTYPE_INT, 64, 1};

    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == 't' || (text[i] == 'f' && text[i + 1] == 'a')) {
            return (tmsg_dtype_t){TMSG_DTYPE_BOOL, 8, 1};
        }
        if (strchr(".eEn", text[i]) != NULL) {
            dtype.code = TMSG_DTYPE_FLOAT;
        }
    }
    return dtype;
}

static void free_data(void *data) { free(data); }

static bool add_literal_tensor(tmsg_map_t *map, const char *name,
                               literal_t *literal)
{
    const tmsg_tensor_t tensor = {.data = literal->data,
                                  .device = {TMSG_DEVICE_CPU, 0},
                                  .dtype = literal->dtype,
                                  .ndim = literal->ndim,
                                  .shape = literal->shape};
    const tmsg_map_add_params_t params = {.field_mask =
                                              TMSG_MAP_ADD_PARAM_RELEASE,
                                          .release = free_data,
                                          .release_arg = literal->data};

    if (tmsg_map_add(map, name, &tensor, &params) != TMSG_OK) {
        return complain_literal(literal, tmsg_error_message());
    }
    literal->data = NULL;
    return true;
}

static bool add_literal(tmsg_map_t *map, const char *word, const char *name,
                        const char *text)
{
    const char *colon = strchr(text, ':');
    literal_t literal = {.word = word, .at = text, .ndim = -1};
    bool good;

    memset(literal.shape, -1, sizeof(literal.shape));
    literal.dtype = guess_dtype(text, colon == NULL ? strlen(text)
                                                    : (size_t)(colon - text));
    if (colon != NULL &&
        tmsg_dtype_parse(colon + 1, &literal.dtype) != TMSG_OK) {
        return complain_literal(&literal, tmsg_error_message());
    }
    if (!is_plain(literal.dtype)) {
        return complain_literal(
            &literal, "elements of that dtype have to come in a file");
    }
    good = read_level(&literal, 0);
    if (good) {
        skip_literal_space(&literal);
        good =
            literal.at == (colon == NULL ? text + strlen(text) : colon) ||
            complain_literal(&literal, "there is something behind the value");
    }
    /* Extents after an empty list have no length yet; they become 0. */
    for (int32_t i = 0; good && i < literal.ndim; i++) {
        literal.shape[i] = literal.shape[i] < 0 ? 0 : literal.shape[i];
    }
    good = good && add_literal_tensor(map, name, &literal);
    free(literal.data);
    return good;
}

typedef struct {
    tmsg_map_t *file;
    unsigned users; /* tensors that use the file, and add_file() */
} loaded_t;

static void drop_file(void *arg)
{
    loaded_t *loaded = arg;

    if (--loaded->users == 0) {
        tmsg_map_destroy(loaded->file);
        free(loaded);
    }
}

/* Adds the tensors of a file under their own names. With `name`, the file must
 * have one tensor, which gets that name. */
static bool add_file(tmsg_map_t *map, const char *name, const char *path)
{
    loaded_t *loaded = calloc(1, sizeof(*loaded));
    const tmsg_map_add_params_t params = {.field_mask =
                                              TMSG_MAP_ADD_PARAM_RELEASE,
                                          .release = drop_file,
                                          .release_arg = loaded};
    size_t count;
    bool good = true;

    fault_watch(path);
    if (loaded == NULL ||
        tmsg_file_load(path, NULL, &loaded->file) != TMSG_OK) {
        complain("%s", loaded == NULL ? "out of memory" : tmsg_error_message());
        free(loaded);
        return false;
    }
    loaded->users = 1;
    count = tmsg_map_size(loaded->file);
    if (name != NULL && count != 1) {
        complain("%s: %zu tensors for the one name '%s'; without a name they "
                 "come under their own",
                 path, count, name);
        good = false;
    }
    for (size_t i = 0; good && i < count; i++) {
        const char *own;
        tmsg_tensor_t tensor;

        tmsg_map_at(loaded->file, i, &own, &tensor);
        good = tmsg_map_add(map, name == NULL ? own : name, &tensor, &params) ==
               TMSG_OK;
        loaded->users += good;
        if (!good) {
            complain("%s: %s", path, tmsg_error_message());
        }
    }
    drop_file(loaded);
    return good;
}

static bool is_literal(const char *text)
{
    return *text == '[' || is_literal_word(text, "true") ||
           is_literal_word(text, "false") || is_literal_word(text, "nan") ||
           is_literal_word(text, "inf") ||
           (*text != '\0' && text[strspn(text, "+-.0123456789eE")] == '\0') ||
           (*text != '\0' && text[strspn(text, "+-.0123456789eE")] == ':');
}

bool values_add(tmsg_map_t *map, const char *word)
{
    const char *equal = strchr(word, '=');
    const char *slash = strchr(word, '/');
    char *name;
    bool good;

    /* A path may contain '=', and the name of a tensor may contain '/'. */
    if (equal == NULL || equal == word ||
        (slash == word || (slash != NULL && *word == '.' && slash < equal))) {
        return add_file(map, NULL, word);
    }
    name = strndup(word, (size_t)(equal - word));
    if (name == NULL) {
        complain("out of memory");
        return false;
    }
    good = is_literal(equal + 1) ? add_literal(map, word, name, equal + 1)
                                 : add_file(map, name, equal + 1);
    free(name);
    return good;
}

static tmsg_status_t set_meta(tmsg_map_t *map, const char *key,
                              const char *text)
{
    size_t bytes = strlen(text);
    const tmsg_meta_t quoted = {.type = TMSG_META_TYPE_STRING,
                                .data = text + 1,
                                .bytes = bytes < 2 ? 0 : bytes - 2};
    char *end;
    long long number;
    double value;

    if (bytes >= 2 && text[0] == '"' && text[bytes - 1] == '"') {
        return tmsg_map_set_meta(map, key, &quoted);
    }
    if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0) {
        return tmsg_map_set_bool(map, key, *text == 't');
    }
    errno = 0;
    number = strtoll(text, &end, 10);
    if (end != text && *end == '\0' && errno == 0) {
        return tmsg_map_set_i64(map, key, number);
    }
    value = strtod(text, &end);
    if (end != text && *end == '\0' && strpbrk(text, "xX") == NULL) {
        return tmsg_map_set_f64(map, key, value);
    }
    return tmsg_map_set_string(map, key, text);
}

bool values_add_meta(tmsg_map_t *map, const char *word)
{
    const char *equal = strchr(word, '=');
    char *key = equal == NULL ? NULL : strndup(word, (size_t)(equal - word));
    bool good = false;

    if (equal == NULL) {
        complain("'%s' is not KEY=VALUE", tmsg_shown_short(word).text);
    } else if (key == NULL) {
        complain("out of memory");
    } else {
        good = set_meta(map, key, equal + 1) == TMSG_OK;
        if (!good) {
            complain("%s", tmsg_error_message());
        }
    }
    free(key);
    return good;
}
