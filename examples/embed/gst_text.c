/* SPDX-License-Identifier: BSD-3-Clause */
/* gst_text.c - looks at a peer's text before GStreamer's parser reads it. That
 * parser recurses for each list in a list, and for each text in a text, until
 * the stack is full; and it reads a broken structure in brackets twice at each
 * level. This file splits text as the parser does, and refuses what GStreamer
 * does not write and could hide text from it. */
#include <string.h>

#include "gst_tensormsg.h"

#define MOST_TEXT 65536 /* bytes */
#define MOST_OPEN 16    /* lists and quotes, at once */

static gboolean is_octal(const gchar *digits)
{
    return digits[0] >= '0' && digits[0] <= '3' && digits[1] >= '0' &&
           digits[1] <= '7' && digits[2] >= '0' && digits[2] <= '7';
}

/* What is between quotes, as the parser reads it there: \X is X, \ooo a byte.
 */
static gchar *unquote(const gchar *text, gsize bytes)
{
    gchar *plain = g_malloc(bytes + 1), *to = plain;

    for (gsize i = 0; i < bytes; i++) {
        if (text[i] == '\\' && is_octal(text + i + 1)) {
            *to++ = (gchar)g_ascii_strtoull(
                (gchar[]){text[i + 1], text[i + 2], text[i + 3], '\0'}, NULL,
                8);
            i += 3;
        } else {
            i += text[i] == '\\';
            *to++ = text[i];
        }
    }
    *to = '\0';
    return plain;
}

/* The quote that ends what begins at *text, or NULL. */
static const gchar *end_of_quoted(const gchar *text)
{
    for (text++; *text != '"'; text++) {
        text += *text == '\\';
        if (*text == '\0') {
            return NULL;
        }
    }
    return text;
}

/* A type, or the features of caps. A GstSample has text in base64, and "/"
 * names the type of a list, for which GStreamer 1.28 takes any. */
static const gchar *check_type(const gchar *open, const gchar *end,
                               gboolean *is_string_p)
{
    static const gchar *const strings[] = {"string", "str", "s", NULL};
    gchar *name = g_strstrip(g_strndup(open + 1, (gsize)(end - open - 1)));
    const gchar *fault = NULL;

    *is_string_p = g_strv_contains(strings, name);
    if (strcmp(name, "sample") == 0 || strcmp(name, "GstSample") == 0) {
        fault = "has a GstSample";
    } else if (strchr(name, '/') != NULL) {
        fault = "names the type of a list";
    }
    g_free(name);
    return fault;
}

static const gchar *find_fault(const gchar *text, guint open);

static const gchar *check_quoted(const gchar *quote, const gchar *end,
                                 guint open)
{
    gchar *plain = unquote(quote + 1, (gsize)(end - quote - 1));
    const gchar *fault = find_fault(plain, open);

    g_free(plain);
    return fault;
}

/* Of text that is in as many lists and quotes. It ends where the parser
 * fails. */
static const gchar *find_fault(const gchar *text, guint open)
{
    const guint around = open;
    gboolean is_string = FALSE; /* so what is in quotes is not parsed */
    const gchar *fault = NULL;

    if (open > MOST_OPEN) {
        return "has too many brackets and quotes in each other";
    }
    for (const gchar *at = text; fault == NULL && *at != '\0'; at++) {
        const gchar *end = at;

        if (*at == '{' || *at == '<') {
            fault = ++open > MOST_OPEN
                        ? "has too many brackets and quotes in each other"
                        : NULL;
        } else if (*at == '}' || *at == '>') {
            open -= open > around;
        } else if (*at == '[' &&
                   at[1 + strcspn(at + 1, "[]{}<>(=;\"")] != ']') {
            fault = "has '[' that begins no range";
        } else if (*at == '"') {
            end = end_of_quoted(at);
            fault = end == NULL || is_string ? NULL
                                             : check_quoted(at, end, open + 1);
        } else if (*at == '(') {
            end = strchr(at, ')');
            fault = end == NULL ? NULL : check_type(at, end, &is_string);
        }
        if (end == NULL) {
            return NULL;
        }
        is_string = is_string && (*at == '(' || g_ascii_isspace(*at));
        at = end;
    }
    return fault;
}

gchar *text_check(const gchar *key, const gchar *text)
{
    const gchar *fault = NULL;

    if (strlen(text) > MOST_TEXT) {
        fault = "is longer than " G_STRINGIFY(MOST_TEXT) " bytes";
    } else if (strcmp(key, KEY_SEGMENT) == 0) {
        /* All but the first quote and the last is read as it is. */
        gchar *inner = g_strdup(text + (*text == '"'));

        if (g_str_has_suffix(inner, "\"")) {
            inner[strlen(inner) - 1] = '\0';
        }
        fault = find_fault(inner, 0);
        g_free(inner);
    } else {
        fault = find_fault(text, 0);
    }
    return fault == NULL ? NULL : g_strdup_printf("'%s' %s", key, fault);
}

static gboolean check_key(const tmsg_map_t *map, const gchar *key,
                          gchar **error_p)
{
    const char *text;

    if (tmsg_map_get_string(map, key, &text) != TMSG_OK) {
        return FALSE;
    }
    *error_p = text_check(key, text);
    return *error_p == NULL;
}

gchar *texts_check(const tmsg_map_t *map)
{
    gchar *error = NULL;
    gboolean more = TRUE;

    check_key(map, KEY_CAPS, &error);
    if (error == NULL) {
        check_key(map, KEY_SEGMENT, &error);
    }
    for (guint i = 0; error == NULL && more; i++) {
        gchar *key = g_strdup_printf(KEY_META, i);

        more = check_key(map, key, &error);
        g_free(key);
    }
    return error;
}
