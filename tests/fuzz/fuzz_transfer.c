/* SPDX-License-Identifier: BSD-3-Clause */
/* The words between `tensormsg send` and `tensormsg recv`, which a peer may say
 * in any order and with any values: offers, replies, verdicts, names and sizes
 * of files, tables of tensors. An input is a map: for each entry a byte that
 * chooses its kind and key, then its value.
 *
 *   kind     bits 0 to 2: text, i64, bool, bytes, tensor
 *   key      bits 3 to 7: one of keys[], beyond them a text of its own
 *   text     a byte with its length, and the bytes
 *   i64      eight bytes, little-endian
 *
 * Whatever is accepted has the promised form, a file lies in its folder and
 * nowhere else, and what is printed has no control characters.
 * fuzz: slow (each input may be a file) */
#include <assert.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "show.h"
#include "store.h"
#include "transfer.h"

enum { KIND_TEXT, KIND_I64, KIND_BOOL, KIND_BYTES, KIND_TENSOR };

static const char *const keys[] = {
    "transfer.offer",    "transfer.bytes",      "transfer.note",
    "transfer.checked",  "transfer.verdict",    "transfer.reply",
    "transfer.state",    "transfer.file",       "transfer.error",
    TMSG_META_FILE_NAME, TMSG_META_FILE_FORMAT,
};

#define KEY_COUNT (sizeof(keys) / sizeof(keys[0]))

typedef struct {
    const uint8_t *at, *end;
} input_t;

static uint8_t next_byte(input_t *input)
{
    return input->at < input->end ? *input->at++ : 0;
}

/* Returns the length. The text has a NUL behind it. */
static size_t next_text(input_t *input, char text[256])
{
    size_t bytes = next_byte(input), left = (size_t)(input->end - input->at);

    bytes = bytes < left ? bytes : left;
    if (bytes > 0) {
        memcpy(text, input->at, bytes);
    }
    text[bytes] = '\0';
    input->at += bytes;
    return bytes;
}

static int64_t next_i64(input_t *input)
{
    uint64_t value = 0;

    for (int i = 0; i < 8; i++) {
        value |= (uint64_t)next_byte(input) << 8 * i;
    }
    return (int64_t)value;
}

static void add_tensor(tmsg_map_t *map, const char *name, uint8_t how)
{
    static uint8_t data[64];
    const int64_t shape[] = {how & 3, 1 + (how >> 2 & 3)};
    const tmsg_tensor_t tensor = {
        .data = data,
        .device = {.type = TMSG_DEVICE_CPU},
        .dtype = {.code = TMSG_DTYPE_UINT, .bits = 8, .lanes = 1},
        .ndim = how >> 4 & 1 ? 2 : 1,
        .shape = shape,
    };

    (void)tmsg_map_add(map, name, &tensor, NULL);
}

/* What cannot be in a map is left out. */
static void add_entry(tmsg_map_t *map, input_t *input)
{
    char own[256], text[256];
    uint8_t byte = next_byte(input);
    size_t which = byte >> 3, bytes;
    const char *key = own;

    if (which < KEY_COUNT) {
        key = keys[which];
    } else {
        next_text(input, own);
    }
    switch (byte & 7) {
    case KIND_TEXT:
    case KIND_BYTES:
        bytes = next_text(input, text);
        (void)tmsg_map_set_meta(
            map, key,
            &(tmsg_meta_t){.type = (byte & 7) == KIND_TEXT
                                       ? TMSG_META_TYPE_STRING
                                       : TMSG_META_TYPE_BYTES,
                           .data = text,
                           .bytes = bytes});
        break;
    case KIND_I64:
        (void)tmsg_map_set_i64(map, key, next_i64(input));
        break;
    case KIND_BOOL:
        (void)tmsg_map_set_bool(map, key, next_byte(input) & 1);
        break;
    default:
        add_tensor(map, key, next_byte(input));
    }
}

/* --- what is printed --- */

/* Nothing in it controls a terminal. `space` is what it is laid out with. */
static void check_shown(FILE *stream, char **text, const size_t *bytes,
                        const char *space)
{
    fclose(stream);
    for (size_t i = 0; i < *bytes; i++) {
        uint8_t c = (uint8_t)(*text)[i];

        assert((c >= 0x20 && c != 0x7f) || (c != 0 && strchr(space, c)));
        assert(c != 0xc2 || (uint8_t)(*text)[i + 1] >= 0xa0);
    }
    free(*text);
}

static void show_all(const tmsg_map_t *map, const char *note)
{
    digest_t digest = {0};
    char *text, *json;
    size_t bytes;
    FILE *stream = open_memstream(&text, &bytes);

    assert(stream != NULL);
    assert(digest_map(map, true, &digest) == TMSG_OK);
    show_table(stream, map, &digest);
    put_text(stream, note == NULL ? "" : note);
    check_shown(stream, &text, &bytes, "\n");
    free(digest.sums);
    if (tmsg_map_to_json(map, &json) == TMSG_OK) {
        stream = open_memstream(&text, &bytes);
        assert(stream != NULL);
        put_json(stream, json);
        check_shown(stream, &text, &bytes, "\n\t");
        tmsg_string_free(json);
    }
}

/* --- what is kept --- */

static char folder[64];

static void remove_folder(void) { rmdir(folder); }

static const char *own_folder(void)
{
    if (folder[0] == '\0') {
        snprintf(folder, sizeof(folder), "%s/fuzz-transfer-XXXXXX",
                 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        assert(mkdtemp(folder) != NULL);
        atexit(remove_folder);
    }
    return folder;
}

/* Removes what is in the folder, and returns how many files there were. */
static unsigned empty_folder(void)
{
    DIR *dir = opendir(folder);
    unsigned count = 0;

    assert(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (strcmp(entry->d_name, ".") != 0 &&
            strcmp(entry->d_name, "..") != 0) {
            assert(unlinkat(dirfd(dir), entry->d_name, 0) == 0);
            count++;
        }
    }
    closedir(dir);
    return count;
}

/* Saves the map as its own words say. */
static void save(const tmsg_map_t *map)
{
    store_t store = {.dir = own_folder()};
    const char *name = transfer_text(map, TMSG_META_FILE_NAME);
    const char *format = transfer_text(map, TMSG_META_FILE_FORMAT);
    char why[640] = "", *path = NULL;
    bool wanted = store_would_take(&store, name, format, 0, why, sizeof(why));
    bool saved = store_save(&store, map, &path, why, sizeof(why));

    assert(!saved || wanted);
    if (saved) {
        const char *last = strrchr(path, '/') + 1;

        assert(strlen(folder) == (size_t)(last - path) - 1);
        assert(strncmp(path, folder, strlen(folder)) == 0);
        assert(*last != '.' && *last != '-' && *last != '\0');
        assert(name == NULL || strcmp(last, name) == 0);
    }
    assert(empty_folder() == (saved ? 1 : 0));
    free(path);
}

/* --- what is understood --- */

static void read_words(const tmsg_map_t *map)
{
    transfer_offer_t offer = {0};
    transfer_reply_t reply = {0};
    transfer_verdict_t verdict = {0};

    if (transfer_read_offer(map, &offer)) {
        assert(tmsg_map_size(map) == 0);
        assert(offer.number >= 1 && offer.bytes <= INT64_MAX);
    }
    if (transfer_read_reply(map, &reply)) {
        assert(reply.state <= TRANSFER_FAILED);
        assert(strlen(reply.file) <= 255 && strlen(reply.error) <= 255);
    }
    if (transfer_read_verdict(map, &verdict)) {
        assert(tmsg_map_size(map) == 0);
        assert(verdict.changed == NULL || strlen(verdict.changed) <= 255);
    }
    show_all(map, offer.note);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input_t input = {data, data + size};
    tmsg_map_t *map;

    if (size == 0) {
        return 0;
    }
    assert(tmsg_map_create(&map) == TMSG_OK);
    while (input.at < input.end) {
        add_entry(map, &input);
    }
    read_words(map);
    save(map);
    tmsg_map_destroy(map);
    return 0;
}
