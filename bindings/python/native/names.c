/* SPDX-License-Identifier: BSD-3-Clause */
#include "names.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <core/shown.h>

#define SLOTS 1024 /* a power of 2 */
#define LONGEST 55 /* bytes of a name that is kept */

/* What came last of all names that fall together. */
typedef struct {
    PyObject *name; /* of these very bytes; NULL: none yet */
    char utf8[LONGEST + 1];
} slot_t;

static slot_t by_text[SLOTS], by_object[SLOTS];

/* Names of one map mostly differ in few letters. */
static slot_t *slot_of_text(const char *utf8, size_t bytes)
{
    uint32_t hash = (uint32_t)bytes;

    for (size_t i = 0; i < bytes; i++) {
        hash = hash * 31 + (unsigned char)utf8[i];
    }
    return &by_text[(hash ^ hash >> 10) % SLOTS];
}

static slot_t *slot_of_object(const PyObject *name)
{
    uintptr_t address = (uintptr_t)name / 16;

    return &by_object[(address ^ address >> 10) % SLOTS];
}

/* Freeing an exact str runs no Python code. */
static void keep(slot_t *slot, PyObject *name, const char *utf8, size_t bytes)
{
    PyObject *gone = slot->name;

    Py_INCREF(name);
    slot->name = name;
    memcpy(slot->utf8, utf8, bytes + 1);
    Py_XDECREF(gone);
}

PyObject *tmsgpy_name_of(const char *utf8)
{
    size_t bytes = strlen(utf8);
    slot_t *slot;
    PyObject *name;

    if (bytes > LONGEST) {
        return PyUnicode_FromStringAndSize(utf8, (Py_ssize_t)bytes);
    }
    slot = slot_of_text(utf8, bytes);
    if (slot->name != NULL && strcmp(slot->utf8, utf8) == 0) {
        Py_INCREF(slot->name);
        return slot->name;
    }
    name = PyUnicode_FromStringAndSize(utf8, (Py_ssize_t)bytes);
    if (name != NULL) {
        keep(slot, name, utf8, bytes);
    }
    return name;
}

const char *tmsgpy_name_utf8(PyObject *name)
{
    const slot_t *slot = slot_of_object(name);

    return slot->name == name ? slot->utf8 : NULL;
}

void tmsgpy_name_note(PyObject *name, const char *utf8)
{
    size_t bytes = strlen(utf8);

    if (bytes <= LONGEST && PyUnicode_CheckExact(name)) {
        keep(slot_of_object(name), name, utf8, bytes);
    }
}

/* Lone surrogates, which only a str of this side can have, become bytes that
 * are not UTF-8. */
PyObject *tmsgpy_shown(PyObject *self, PyObject *text)
{
    PyObject *utf8 = PyUnicode_AsEncodedString(text, "utf-8", "surrogatepass");
    PyObject *shown = NULL;
    char *from, *to;
    Py_ssize_t bytes;

    (void)self;
    if (utf8 == NULL || PyBytes_AsStringAndSize(utf8, &from, &bytes) < 0) {
        Py_XDECREF(utf8);
        return NULL;
    }
    to = malloc(4 * (size_t)bytes + 1); /* of escapes alone */
    if (to == NULL) {
        Py_DECREF(utf8);
        return PyErr_NoMemory();
    }
    shown = PyUnicode_FromStringAndSize(
        to, (Py_ssize_t)tmsg_shown_write(to, from, (size_t)bytes));
    free(to);
    Py_DECREF(utf8);
    return shown;
}
