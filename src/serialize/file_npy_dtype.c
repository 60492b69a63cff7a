/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serialize/file_npy.h"

#define ANY_SIZE 0 /* value of kinds[].bytes that matches any number */

/* Maps a dtype's letter, and the number after it, to a dtype. ml_dtypes writes
 * its bfloat16 as "<V2", while numpy's own void is "|V2". It writes its
 * float8_e5m2 as "<f1", and all its other dtypes as "<V1", which says no more
 * than the size. */
static const struct {
    char letter;
    unsigned bytes;
    uint8_t code;
    const char *refused; /* name of a dtype that is not supported, or NULL */
} kinds[] = {
    {'b', 1, TMSG_DTYPE_BOOL, NULL},
    {'i', 1, TMSG_DTYPE_INT, NULL},
    {'i', 2, TMSG_DTYPE_INT, NULL},
    {'i', 4, TMSG_DTYPE_INT, NULL},
    {'i', 8, TMSG_DTYPE_INT, NULL},
    {'u', 1, TMSG_DTYPE_UINT, NULL},
    {'u', 2, TMSG_DTYPE_UINT, NULL},
    {'u', 4, TMSG_DTYPE_UINT, NULL},
    {'u', 8, TMSG_DTYPE_UINT, NULL},
    {'f', 1, TMSG_DTYPE_FLOAT8_E5M2, NULL},
    {'f', 2, TMSG_DTYPE_FLOAT, NULL},
    {'f', 4, TMSG_DTYPE_FLOAT, NULL},
    {'f', 8, TMSG_DTYPE_FLOAT, NULL},
    {'f', 12, 0, "longdouble"},
    {'f', 16, 0, "longdouble"},
    {'c', 8, TMSG_DTYPE_COMPLEX, NULL},
    {'c', 16, TMSG_DTYPE_COMPLEX, NULL},
    {'c', 24, 0, "clongdouble"},
    {'c', 32, 0, "clongdouble"},
    {'V', 1, TMSG_DTYPE_OPAQUE, NULL},
    {'V', 2, TMSG_DTYPE_OPAQUE, NULL},
    {'V', 4, TMSG_DTYPE_OPAQUE, NULL},
    {'V', 8, TMSG_DTYPE_OPAQUE, NULL},
    {'V', 16, TMSG_DTYPE_OPAQUE, NULL},
    {'V', ANY_SIZE, 0, "a void type of that size"},
    {'O', ANY_SIZE, 0, "Python objects"},
    {'S', ANY_SIZE, 0, "byte strings"},
    {'a', ANY_SIZE, 0, "byte strings"},
    {'U', ANY_SIZE, 0, "strings"},
    {'T', ANY_SIZE, 0, "strings"},
    {'M', ANY_SIZE, 0, "dates (datetime64)"},
    {'m', ANY_SIZE, 0, "time differences (timedelta64)"},
};

/* Lists other spellings that numpy accepts. A letter may have a byte order
 * before it, a word may not. Spellings whose size depends on the machine ("l",
 * "int") are missing, because a file does not say which machine wrote it. */
static const struct {
    const char *text, *kind;
} spellings[] = {
    {"?", "b1"},           {"b", "i1"},       {"h", "i2"},
    {"i", "i4"},           {"q", "i8"},       {"B", "u1"},
    {"H", "u2"},           {"I", "u4"},       {"Q", "u8"},
    {"e", "f2"},           {"f", "f4"},       {"d", "f8"},
    {"F", "c8"},           {"D", "c16"},      {"bool", "b1"},
    {"int8", "i1"},        {"int16", "i2"},   {"int32", "i4"},
    {"int64", "i8"},       {"uint8", "u1"},   {"uint16", "u2"},
    {"uint32", "u4"},      {"uint64", "u8"},  {"float16", "f2"},
    {"float32", "f4"},     {"float64", "f8"}, {"complex64", "c8"},
    {"complex128", "c16"},
};

#define SPELLINGS (sizeof(spellings) / sizeof(spellings[0]))
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static tmsg_status_t refuse_npy_dtype(const tmsg_file_where_t *where,
                                      const char *text, const char *what)
{
    return tmsg_file_fail(where, TMSG_ERR_UNSUPPORTED,
                          "dtype '%s' is not supported: %s", text, what);
}

static tmsg_status_t take_kind(const tmsg_file_where_t *where, const char *text,
                               size_t kind, char order, tmsg_dtype_t *dtype_p,
                               bool *swap_p)
{
    unsigned bytes = kinds[kind].bytes;

    if (kinds[kind].refused != NULL) {
        return refuse_npy_dtype(where, text, kinds[kind].refused);
    }
    *dtype_p = (tmsg_dtype_t){kinds[kind].code, (uint8_t)(8 * bytes), 1};
    if (dtype_p->code == TMSG_DTYPE_OPAQUE) {
        if (bytes != 2 || order == '|') {
            order = '|';
        } else {
            dtype_p->code = TMSG_DTYPE_BFLOAT;
        }
    }
    *swap_p = order == '>' && bytes > 1;
    return TMSG_OK;
}

/* Returns the letter and the number of a dtype, without its byte order. */
static const char *find_kind(const char *text)
{
    bool ordered = *text != '\0' && strchr("<>=|", *text) != NULL;
    const char *kind = text + ordered;

    for (size_t i = 0; i < SPELLINGS; i++) {
        if (strcmp(kind, spellings[i].text) == 0 &&
            (!ordered || kind[1] == '\0')) {
            return spellings[i].kind;
        }
    }
    return kind;
}

tmsg_status_t tmsg_npy_read_dtype(const tmsg_file_where_t *where,
                                  const char *text, tmsg_dtype_t *dtype_p,
                                  bool *swap_p)
{
    const char *letter = find_kind(text);
    char order = *text == '<' || *text == '>' || *text == '=' ? *text : '|';
    char *end = NULL;
    unsigned long bytes;

    if (*letter != '\0' && letter[1] >= '1' && letter[1] <= '9') {
        bytes = strtoul(letter + 1, &end, 10);
    } else {
        bytes = ANY_SIZE;
    }
    for (size_t i = 0; i < KINDS; i++) {
        bool sized = end != NULL && *end == '\0' && kinds[i].bytes == bytes;

        if (*letter == kinds[i].letter &&
            (sized || kinds[i].bytes == ANY_SIZE)) {
            return take_kind(where, text, i, order, dtype_p, swap_p);
        }
    }
    return tmsg_file_fail(where, TMSG_ERR_MALFORMED, "unknown dtype '%s'",
                          text);
}

bool tmsg_npy_dtype_name(tmsg_dtype_t dtype, char name[8])
{
    unsigned bytes = dtype.bits / 8u;
    char order = bytes == 1 || dtype.code == TMSG_DTYPE_OPAQUE ? '|' : '<';

    if (dtype.code == TMSG_DTYPE_BFLOAT) {
        strcpy(name, "<V2");
        return true;
    }
    if (dtype.code == TMSG_DTYPE_FLOAT8_E5M2) {
        strcpy(name, "<f1");
        return true;
    }
    for (size_t i = 0; i < KINDS && dtype.bits % 8 == 0; i++) {
        if (kinds[i].refused == NULL && kinds[i].code == dtype.code &&
            kinds[i].bytes == bytes) {
            snprintf(name, 8, "%c%c%u", order, kinds[i].letter, bytes & 31u);
            return true;
        }
    }
    return false;
}

bool tmsg_npy_holds(tmsg_dtype_t dtype)
{
    char name[8];

    return dtype.lanes == 1 && tmsg_npy_dtype_name(dtype, name);
}
