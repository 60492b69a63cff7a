/* SPDX-License-Identifier: BSD-3-Clause */
#include "pack.h"

#include <string.h>

#include <tensormsg/interceptor.h>
#include <tensormsg/meta.h>
#include <tensormsg/shareable.h>

#include "arrays.h"
#include "borrowed.h"
#include "device.h"
#include "errors.h"
#include "hub.h"
#include "lent.h"
#include "names.h"

/* What Python calls the reserved keys. */
static const struct {
    const char *name;
    const char *key;
} reserved[] = {
    {"frame", TMSG_META_FRAME},
    {"sequence", TMSG_META_SEQUENCE},
    {"acquired_ns", TMSG_META_ACQUIRED},
    {"published_ns", TMSG_META_PUBLISHED},
    {"trace_parent", TMSG_META_TRACE_PARENT},
    {"trace_state", TMSG_META_TRACE_STATE},
    {"file_name", TMSG_META_FILE_NAME},
    {"file_format", TMSG_META_FILE_FORMAT},
    {"ucxx_header", TMSG_META_UCXX_HEADER},
};

#define RESERVED_COUNT (sizeof(reserved) / sizeof(reserved[0]))
#define RESERVED_PREFIX "tensormsg."

static const char *key_of(const char *name)
{
    for (size_t i = 0; i < RESERVED_COUNT; i++) {
        if (strcmp(reserved[i].name, name) == 0) {
            return reserved[i].key;
        }
    }
    return name;
}

static const char *name_of(const char *key)
{
    if (strncmp(key, RESERVED_PREFIX, strlen(RESERVED_PREFIX)) != 0) {
        return key;
    }
    for (size_t i = 0; i < RESERVED_COUNT; i++) {
        if (strcmp(reserved[i].key, key) == 0) {
            return reserved[i].name;
        }
    }
    return key;
}

void tmsgpy_breathe(Py_ssize_t entry)
{
    if ((entry + 1) % TMSGPY_SLICE == 0) {
        PyEval_RestoreThread(PyEval_SaveThread());
    }
}

/* What a user calls it: leaves that are no arrays have a mark before it. */
static PyObject *called(PyObject *name)
{
    Py_ssize_t length = PyUnicode_GetLength(name);

    if (length > 1 && PyUnicode_ReadChar(name, 0) == '/') {
        return PyUnicode_Substring(name, 1, length);
    }
    Py_INCREF(name);
    return name;
}

/* Raises another in place of what there is, about that name; returns NULL. */
static PyObject *refuse(PyObject *name, PyObject *kind, const char *words)
{
    PyErr_Clear();
    name = called(name);
    if (name != NULL) {
        PyErr_Format(kind, "%R: %s", name, words);
        Py_DECREF(name);
    }
    return NULL;
}

/* UTF-8 of a str that becomes a C string; the caller drops what is returned. */
static PyObject *utf8_of(PyObject *text, const char **utf8_p)
{
    PyObject *bytes;

    *utf8_p = tmsgpy_name_utf8(text);
    if (*utf8_p != NULL) {
        Py_INCREF(text);
        return text;
    }
    if (!PyUnicode_Check(text)) {
        PyErr_Format(PyExc_TypeError, "names are str, not %R", text);
        return NULL;
    }
    bytes = PyUnicode_AsUTF8String(text);
    if (bytes == NULL) {
        return PyErr_ExceptionMatches(PyExc_UnicodeError)
                   ? refuse(text, PyExc_ValueError,
                            "a name has no lone surrogate, which UTF-8 lacks")
                   : NULL;
    }
    if (PyBytes_AsStringAndSize(bytes, (char **)utf8_p, NULL) != 0) {
        Py_DECREF(bytes);
        return refuse(text, PyExc_ValueError, "a name has no NUL");
    }
    tmsgpy_name_note(text, *utf8_p);
    return bytes;
}

/* Raises; returns -1. */
static int failed(tmsg_status_t status)
{
    tmsgpy_raise(status, tmsg_error_message(), NULL);
    return -1;
}

static tmsg_status_t add_posted(tmsg_map_t *map, const char *name,
                                const tmsg_tensor_t *tensor,
                                tmsgpy_posted_t *posted)
{
    const tmsg_map_add_params_t params = {.field_mask =
                                              TMSG_MAP_ADD_PARAM_RELEASE,
                                          .release = tmsgpy_posted_release,
                                          .release_arg = posted};
    tmsg_status_t status;

    tmsgpy_posted_add(posted);
    status = tmsg_map_add(map, name, tensor, &params);
    if (status != TMSG_OK) {
        tmsgpy_posted_release(posted);
    }
    return status;
}

static tmsg_status_t add_device(tmsg_map_t *map, const char *name,
                                const tmsgpy_device_t *device)
{
    const tmsg_map_add_params_t params = {
        .field_mask = TMSG_MAP_ADD_PARAM_STREAM, .stream = device->stream};

    return tmsg_map_add(map, name, &device->tensor,
                        device->stream.kind == TMSG_STREAM_NONE ? NULL
                                                                : &params);
}

/* `posted`: of the buffers that it is one of; NULL: it is borrowed. */
static int add(tmsg_map_t *map, PyObject *name, PyObject *value,
               tmsgpy_posted_t *posted)
{
    int64_t strides[TMSGPY_NDIM_MAX];
    tmsg_tensor_t tensor;
    const char *utf8;
    PyObject *bytes;
    const tmsgpy_device_t *device = NULL;
    int rc = tmsgpy_tensor_of(value, &tensor, strides);

    if (rc == 0) {
        device = posted != NULL ? NULL : tmsgpy_device_of(value);
        if (device == NULL) {
            return 0;
        }
    }
    bytes = utf8_of(name, &utf8);
    if (bytes == NULL) {
        return -1;
    }
    if (rc < 0) {
        tmsgpy_refuse_tensor((tmsg_status_t)rc, utf8);
        rc = -1;
    } else if (device == NULL && !tmsgpy_is_host(&tensor)) {
        refuse(name, PyExc_TypeError,
               "the capsule is of device memory: give an object with "
               "__dlpack__() and __dlpack_device__()");
        rc = -1;
    } else {
        tmsg_status_t status = device != NULL ? add_device(map, utf8, device)
                               : posted != NULL
                                   ? add_posted(map, utf8, &tensor, posted)
                                   : tmsg_map_add(map, utf8, &tensor, NULL);

        rc = status == TMSG_OK ? 1 : PyErr_Occurred() ? -1 : failed(status);
    }
    Py_DECREF(bytes);
    return rc;
}

/* The value borrows from `value` and *hold_p. */
static int meta_of(PyObject *name, PyObject *value, tmsg_meta_t *meta_p,
                   PyObject **hold_p)
{
    Py_ssize_t size = 0;
    char *data = NULL;

    if (PyBool_Check(value)) {
        *meta_p = (tmsg_meta_t){.type = TMSG_META_TYPE_BOOL,
                                .boolean = value == Py_True};
    } else if (PyLong_Check(value)) {
        *meta_p = (tmsg_meta_t){.type = TMSG_META_TYPE_I64,
                                .i64 = PyLong_AsLongLong(value)};
        if (meta_p->i64 == -1 && PyErr_Occurred()) {
            refuse(name, PyExc_OverflowError,
                   "an int travels as 64 bits with a sign, -2**63 to 2**63 - 1;"
                   " send a larger one as str");
            return -1;
        }
    } else if (PyFloat_Check(value)) {
        *meta_p = (tmsg_meta_t){.type = TMSG_META_TYPE_F64,
                                .f64 = PyFloat_AsDouble(value)};
    } else if (PyUnicode_Check(value) || PyBytes_Check(value)) {
        if (PyUnicode_Check(value)) {
            value = *hold_p = PyUnicode_AsUTF8String(value);
        }
        if (value == NULL && PyErr_ExceptionMatches(PyExc_UnicodeError)) {
            refuse(
                name, PyExc_ValueError,
                "the str has a lone surrogate, which UTF-8 lacks: send bytes");
            return -1;
        }
        if (value == NULL || PyBytes_AsStringAndSize(value, &data, &size) < 0) {
            return -1;
        }
        *meta_p = (tmsg_meta_t){.type = *hold_p != NULL ? TMSG_META_TYPE_STRING
                                                        : TMSG_META_TYPE_BYTES,
                                .data = data,
                                .bytes = (size_t)size};
    } else {
        PyErr_Format(PyExc_TypeError,
                     "metadata %R: a bool, int, float, str or bytes, not %R",
                     name, (PyObject *)Py_TYPE(value));
        return -1;
    }
    return 0;
}

/* Where a key goes to: a map, or the request of a call that is intercepted. */
typedef struct {
    tmsg_map_t *map;
    tmsg_intercepted_t *call;
} target_t;

static int set_meta(target_t target, PyObject *name, PyObject *value)
{
    PyObject *hold = NULL, *bytes;
    const char *utf8;
    tmsg_meta_t meta;
    int rc = -1;

    bytes = utf8_of(name, &utf8);
    if (bytes == NULL) {
        return -1;
    }
    if (meta_of(name, value, &meta, &hold) == 0) {
        tmsg_status_t status =
            target.call == NULL
                ? tmsg_map_set_meta(target.map, key_of(utf8), &meta)
                : tmsg_intercepted_set_meta(target.call, key_of(utf8), &meta);

        rc = status == TMSG_OK ? 0 : failed(status);
    }
    Py_XDECREF(hold);
    Py_DECREF(bytes);
    return rc;
}

int tmsgpy_pack_meta(PyObject *meta, tmsg_map_t *map)
{
    PyObject *name, *value;
    Py_ssize_t at = 0, count = 0;

    while (meta != Py_None && PyDict_Next(meta, &at, &name, &value)) {
        if (set_meta((target_t){map, NULL}, name, value) != 0) {
            return -1;
        }
        tmsgpy_breathe(count++);
    }
    return 1;
}

PyObject *tmsgpy_add_meta(PyObject *self, PyObject *args)
{
    target_t target = {NULL, PyLong_AsVoidPtr(PyTuple_GetItem(args, 0))};

    (void)self;
    if (set_meta(target, PyTuple_GetItem(args, 1), PyTuple_GetItem(args, 2)) !=
        0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

int tmsgpy_pack(PyObject *data, PyObject *meta, tmsg_map_t *map)
{
    PyObject *name, *value;
    Py_ssize_t at = 0, count = 0;

    if (!PyDict_CheckExact(data)) {
        return 0;
    }
    while (PyDict_Next(data, &at, &name, &value)) {
        /* Of what is no str flatten() of _data.py says where it is. */
        int rc = PyUnicode_Check(name) ? add(map, name, value, NULL) : 0;

        if (rc != 1) {
            return rc;
        }
        tmsgpy_breathe(count++);
    }
    return tmsgpy_pack_meta(meta, map);
}

int tmsgpy_pack_buffers(PyObject *data, tmsg_map_t *map,
                        tmsgpy_posted_t *posted)
{
    PyObject *name, *value;
    Py_ssize_t at = 0, count = 0;
    int rc = 1;

    while (rc == 1 && PyDict_Next(data, &at, &name, &value)) {
        rc = add(map, name, value, posted);
        tmsgpy_breathe(count++);
    }
    return rc;
}

/* Capsules are compared by the text of their name. Which of these they have
 * tells how many forks there had been when they were made. */
static const char message_names[TMSGPY_NAMES][sizeof("tensormsg.message")] = {
    [0 ... TMSGPY_NAMES - 1] = "tensormsg.message"};

static const char *message_name(void)
{
    return message_names[tmsgpy_forks() % TMSGPY_NAMES];
}

static void drop_message(PyObject *owner)
{
    if (PyCapsule_GetName(owner) != message_name()) {
        return;
    }
    tmsg_message_destroy(PyCapsule_GetPointer(owner, "tensormsg.message"));
    tmsgpy_drop_lent(); /* buffers that it was received into */
}

/* NULL with an exception: no owner. */
static const tmsg_map_t *map_of(PyObject *owner)
{
    return PyCapsule_GetContext(owner);
}

static PyObject *value_of(const tmsg_meta_t *meta)
{
    switch (meta->type) {
    case TMSG_META_TYPE_BOOL:
        return PyBool_FromLong(meta->boolean);
    case TMSG_META_TYPE_I64:
        return PyLong_FromLongLong(meta->i64);
    case TMSG_META_TYPE_F64:
        return PyFloat_FromDouble(meta->f64);
    case TMSG_META_TYPE_STRING:
        return PyUnicode_FromStringAndSize(meta->data, (Py_ssize_t)meta->bytes);
    default:
        return PyBytes_FromStringAndSize(meta->data, (Py_ssize_t)meta->bytes);
    }
}

/* Takes the value. */
static int put(PyObject *dict, const char *name, PyObject *value)
{
    PyObject *key;
    int rc = -1;

    if (value == NULL) {
        return -1;
    }
    key = tmsgpy_name_of(name);
    if (key != NULL) {
        rc = PyDict_SetItem(dict, key, value);
        Py_DECREF(key);
    }
    Py_DECREF(value);
    return rc;
}

static PyObject *unpack_meta(const tmsg_map_t *map)
{
    size_t count = tmsg_map_meta_size(map);
    PyObject *dict;

    if (count == 0) {
        Py_RETURN_NONE;
    }
    dict = PyDict_New();
    for (size_t i = 0; dict != NULL && i < count; i++) {
        const char *key, *name;
        tmsg_meta_t meta;

        tmsg_map_meta_at(map, i, &key, &meta);
        name = name_of(key);
        if (name != key && tmsg_map_get_meta(map, name, NULL) == TMSG_OK) {
            name = key; /* the peer has a key of that name, too */
        }
        if (put(dict, name, value_of(&meta)) != 0) {
            Py_DECREF(dict);
            dict = NULL;
        }
        tmsgpy_breathe((Py_ssize_t)i);
    }
    return dict;
}

PyObject *tmsgpy_map_meta(PyObject *self, PyObject *map)
{
    (void)self;
    return unpack_meta(PyLong_AsVoidPtr(map));
}

/* `later`: None for each. */
static PyObject *unpack_arrays(const tmsg_map_t *map, PyObject *owner,
                               bool later)
{
    size_t count = tmsg_map_size(map);
    PyObject *dict = PyDict_New();

    for (size_t i = 0; dict != NULL && i < count; i++) {
        const char *name;
        tmsg_tensor_t tensor;

        tmsg_map_at(map, i, &name, &tensor);
        if (put(dict, name,
                later ? Py_BuildValue("") : tmsgpy_array_of(&tensor, owner)) !=
            0) {
            Py_DECREF(dict);
            dict = NULL;
        }
        tmsgpy_breathe((Py_ssize_t)i);
    }
    return dict;
}

static PyObject *unpack(const tmsg_map_t *map, PyObject *owner,
                        const tmsg_endpoint_t *endpoint, bool later)
{
    PyObject *arrays, *meta = NULL, *number = NULL, *all = NULL;

    if (PyCapsule_SetContext(owner, (void *)map) != 0) {
        return NULL;
    }
    arrays = unpack_arrays(map, owner, later);
    meta = arrays == NULL ? NULL : unpack_meta(map);
    number = PyLong_FromVoidPtr((void *)endpoint);
    if (arrays != NULL && meta != NULL && number != NULL) {
        all = PyTuple_Pack(4, arrays, owner, meta, number);
    }
    Py_XDECREF(arrays);
    Py_XDECREF(meta);
    Py_XDECREF(number);
    return all;
}

PyObject *tmsgpy_unpack_map(const tmsg_map_t *map, PyObject *owner,
                            const tmsg_endpoint_t *endpoint)
{
    return unpack(map, owner, endpoint, false);
}

PyObject *tmsgpy_unpack_later(const tmsg_map_t *map, PyObject *owner)
{
    return unpack(map, owner, NULL, true);
}

PyObject *tmsgpy_unpack(tmsg_message_t *message)
{
    PyObject *owner = PyCapsule_New(message, message_name(), drop_message);
    PyObject *all;

    if (owner == NULL) {
        tmsg_message_destroy(message);
        return NULL;
    }
    all = tmsgpy_unpack_map(tmsg_message_map(message), owner,
                            tmsg_message_endpoint(message));
    Py_DECREF(owner);
    return all;
}

int tmsgpy_tensor_at(PyObject *owner, Py_ssize_t index, tmsg_tensor_t *tensor_p)
{
    const tmsg_map_t *map = map_of(owner);
    tmsg_status_t status;

    if (map == NULL) {
        return -1;
    }
    status = tmsg_map_at(map, (size_t)index, NULL, tensor_p);
    return status == TMSG_OK ? 0 : failed(status);
}

/* In any thread, with the lock of the interpreter or without. Where Python has
 * ended the object stays. */
static void drop_object(void *arg)
{
    PyGILState_STATE state;

    if (Py_IsInitialized()) {
        state = PyGILState_Ensure();
        Py_DECREF((PyObject *)arg);
        PyGILState_Release(state);
    }
}

/* A capsule with a tensor that a peer lends, which may be written to: most that
 * take a capsule believe that they may. */
static PyObject *dlpack_borrowed(const char *name, tmsg_tensor_t tensor,
                                 PyObject *owner, bool versioned)
{
    PyObject *mapped = tmsgpy_map_borrowed(&tensor, owner, &tensor.data);
    const tmsg_map_add_params_t params = {.field_mask =
                                              TMSG_MAP_ADD_PARAM_RELEASE,
                                          .release = drop_object,
                                          .release_arg = mapped};
    PyObject *capsule = NULL;
    tmsg_status_t status;
    tmsg_map_t *map;

    if (mapped == NULL) {
        return NULL;
    }
    status = tmsg_map_create(&map);
    if (status == TMSG_OK) {
        status = tmsg_map_add(map, name, &tensor, &params);
        if (status == TMSG_OK) {
            mapped = NULL;
            status = tmsgpy_dlpack_of(map, name, versioned, &capsule);
        }
        tmsg_map_destroy(map);
    }
    Py_XDECREF(mapped);
    if (status != TMSG_OK) {
        failed(status);
    }
    return capsule;
}

PyObject *tmsgpy_dlpack_at(PyObject *owner, Py_ssize_t index, bool versioned)
{
    const tmsg_map_t *map = map_of(owner);
    PyObject *capsule = NULL;
    tmsg_tensor_t tensor;
    tmsg_status_t status;
    const char *name;

    if (map == NULL) {
        return NULL;
    }
    status = tmsg_map_at(map, (size_t)index, &name, &tensor);
    if (status == TMSG_OK && tmsg_shareable_is_borrowed(tensor.data)) {
        return dlpack_borrowed(name, tensor, owner, versioned);
    }
    if (status == TMSG_OK) {
        status = tmsgpy_dlpack_of(map, name, versioned, &capsule);
    }
    if (status != TMSG_OK) {
        failed(status);
    }
    return capsule;
}

PyObject *tmsgpy_borrows(PyObject *self, PyObject *owner)
{
    const tmsg_map_t *map = map_of(owner);

    (void)self;
    return map == NULL ? NULL : PyBool_FromLong(tmsgpy_is_borrowed(map));
}
