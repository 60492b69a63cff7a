/* SPDX-License-Identifier: BSD-3-Clause */
/* Keeps tensors of a message one by one, and makes owners of arrays that came
 * otherwise: part of module tensormsg._hot. A part is a capsule with a map of
 * one tensor, so that arrays and DLPack's capsules are made of it as of a
 * message; its memory is a copy, or is given back to the message when the last
 * that uses it is gone. */
#include "apart.h"

#include <stdlib.h>

#include <tensormsg/call.h>
#include <tensormsg/message.h>

#include "arrays.h"
#include "errors.h"
#include "hub.h"
#include "ops.h"
#include "pack.h"

/* A message that comes eagerly keeps its memory whole, by default up to 1 MiB.
 * The library gives back whole pages. */
enum { MESSAGE_COPIED_MOST = 1 << 20, TENSOR_COPIED_BELOW = 4096 };

/* A message of which some parts are not copied. */
typedef struct {
    PyObject *owner;   /* the one reference that all parts have */
    unsigned forks;    /* that there had been */
    size_t alive;      /* parts, and who makes them */
    size_t gone_count; /* parts that were not given back yet */
    size_t gone[];     /* their indices */
} whole_t;

typedef struct {
    whole_t *whole;
    size_t index;
} part_t;

static bool gives_back(PyObject *owner)
{
    return PyCapsule_IsValid(owner, "tensormsg.message") ||
           PyCapsule_IsValid(owner, "tensormsg.op");
}

static tmsg_status_t give_back(PyObject *owner, size_t index)
{
    if (PyCapsule_IsValid(owner, "tensormsg.op")) {
        return tmsg_call_give_back(tmsgpy_op_of(owner)->call, index);
    }
    return tmsg_message_give_back(
        PyCapsule_GetPointer(owner, "tensormsg.message"), index);
}

/* Nothing, while others have views of the whole message: then the owner has
 * more references, or the map is BUSY. */
static void give_gone_back(whole_t *whole)
{
    size_t left = 0;

    if (!gives_back(whole->owner) || Py_REFCNT(whole->owner) > 1 ||
        whole->forks != tmsgpy_forks()) {
        return;
    }
    for (size_t i = 0; i < whole->gone_count; i++) {
        if (give_back(whole->owner, whole->gone[i]) != TMSG_OK) {
            whole->gone[left++] = whole->gone[i];
        }
    }
    whole->gone_count = left;
}

static void leave(whole_t *whole)
{
    if (--whole->alive == 0) {
        Py_DECREF(whole->owner);
        free(whole);
    }
}

/* In any thread, with the lock of the interpreter or without: DLPack's deleter
 * may be the last. Python that has ended leaks it. */
static void drop_tensor(void *arg)
{
    part_t *part = arg;
    whole_t *whole = part->whole;
    PyGILState_STATE state;

    if (!Py_IsInitialized()) {
        return;
    }
    state = PyGILState_Ensure();
    whole->gone[whole->gone_count++] = part->index;
    free(part);
    if (whole->alive > 1) {
        give_gone_back(whole);
    }
    leave(whole);
    PyGILState_Release(state);
}

static void drop_part(PyObject *capsule)
{
    tmsg_map_destroy(PyCapsule_GetPointer(capsule, "tensormsg.part"));
}

static tmsg_status_t add(whole_t *whole, const tmsg_map_t *from, size_t index,
                         tmsg_map_t *to)
{
    part_t *part = malloc(sizeof(*part));
    const tmsg_map_add_params_t params = {.field_mask =
                                              TMSG_MAP_ADD_PARAM_RELEASE,
                                          .release = drop_tensor,
                                          .release_arg = part};
    tmsg_tensor_t tensor;
    tmsg_status_t status;
    const char *name;

    if (part == NULL) {
        return TMSG_ERR_NO_MEMORY;
    }
    *part = (part_t){whole, index};
    status = tmsg_map_at(from, index, &name, &tensor);
    if (status == TMSG_OK) {
        status = tmsg_map_add(to, name, &tensor, &params);
    }
    if (status != TMSG_OK) {
        free(part);
        return status;
    }
    whole->alive++;
    return TMSG_OK;
}

static PyObject *make(whole_t *whole, const tmsg_map_t *from, size_t index,
                      bool copied)
{
    const char *name = NULL;
    PyObject *capsule = NULL;
    tmsg_map_t *map;
    tmsg_status_t status = tmsg_map_create(&map);

    if (status != TMSG_OK) {
        return PyErr_NoMemory();
    }
    status = copied ? tmsgpy_copy_tensor(from, index, true, map)
                    : add(whole, from, index, map);
    if (status != TMSG_OK) {
        tmsg_map_at(from, index, &name, NULL);
        tmsgpy_raise_copy(status, name);
    } else {
        capsule = PyCapsule_New(map, "tensormsg.part", drop_part);
    }
    if (capsule == NULL) {
        tmsg_map_destroy(map);
    } else {
        PyCapsule_SetContext(capsule, map);
    }
    return capsule;
}

static bool is_host(const tmsg_map_t *map, size_t index)
{
    tmsg_tensor_t tensor;

    return tmsg_map_at(map, index, NULL, &tensor) == TMSG_OK &&
           tensor.device.type == TMSG_DEVICE_CPU;
}

/* Which tensors are copied: those of a short message, or short ones; all of one
 * that gives nothing back. Not those received into memory of others. */
static bool *choose(PyObject *owner, const tmsg_map_t *map, PyObject *arrays)
{
    size_t count = tmsg_map_size(map);
    bool *copied = PyMem_Calloc(count + 1, sizeof(*copied));
    bool all = !gives_back(owner);
    uint64_t bytes, sum = 0;

    for (size_t i = 0; copied != NULL && i < count; i++) {
        PyObject *value = PyList_GetItem(arrays, (Py_ssize_t)i);

        copied[i] = value != NULL && is_host(map, i) &&
                    !tmsgpy_is_of_another(value, owner);
        bytes = copied[i] ? tmsgpy_copy_bytes(map, i, true) : 0;
        sum = sum + bytes < sum ? UINT64_MAX : sum + bytes;
        tmsgpy_breathe((Py_ssize_t)i);
    }
    all = all || sum <= MESSAGE_COPIED_MOST;
    for (size_t i = 0; copied != NULL && !all && i < count; i++) {
        copied[i] =
            copied[i] && tmsgpy_copy_bytes(map, i, true) < TENSOR_COPIED_BELOW;
    }
    return copied;
}

/* apart(owner, arrays): a list of owners, each of one tensor of the message, at
 * its index 0. `arrays` is a list of the message's. */
PyObject *tmsgpy_apart(PyObject *self, PyObject *args)
{
    PyObject *owner, *arrays, *parts = NULL, *part;
    const tmsg_map_t *map;
    whole_t *whole;
    bool *copied;
    size_t count;

    (void)self;
    if (!PyArg_ParseTuple(args, "OO!", &owner, &PyList_Type, &arrays) ||
        (map = PyCapsule_GetContext(owner)) == NULL) {
        return NULL;
    }
    count = tmsg_map_size(map);
    if ((size_t)PyList_Size(arrays) != count) {
        PyErr_SetString(PyExc_ValueError, "not the arrays of that message");
        return NULL;
    }
    copied = choose(owner, map, arrays);
    whole = calloc(1, sizeof(*whole) + count * sizeof(whole->gone[0]));
    if (copied == NULL || whole == NULL) {
        PyMem_Free(copied);
        free(whole);
        return PyErr_NoMemory();
    }
    Py_INCREF(owner);
    whole->owner = owner;
    whole->forks = tmsgpy_forks();
    whole->alive = 1;
    parts = PyList_New(0);
    for (size_t i = 0; parts != NULL && i < count; i++) {
        part = make(whole, map, i, copied[i]);
        if (part == NULL || PyList_Append(parts, part) != 0) {
            Py_DECREF(parts);
            parts = NULL;
        }
        Py_XDECREF(part);
        tmsgpy_breathe((Py_ssize_t)i);
    }
    PyMem_Free(copied);
    leave(whole);
    return parts;
}

/* A map that views arrays, which are kept for it. */
typedef struct {
    tmsg_map_t *map;
    PyObject *arrays;
} made_t;

static void drop_made(PyObject *capsule)
{
    made_t *made = PyCapsule_GetPointer(capsule, "tensormsg.made");

    tmsg_map_destroy(made->map);
    Py_DECREF(made->arrays);
    PyMem_Free(made);
}

/* owner(arrays): the owner of a message of these arrays, a dict that nobody
 * changes. */
PyObject *tmsgpy_owner(PyObject *self, PyObject *arrays)
{
    made_t *made = PyMem_Malloc(sizeof(*made));
    PyObject *capsule = NULL;
    int packed = -1;

    (void)self;
    if (made == NULL || tmsg_map_create(&made->map) != TMSG_OK) {
        PyMem_Free(made);
        return PyErr_NoMemory();
    }
    packed = tmsgpy_pack(arrays, Py_None, made->map);
    if (packed == 1) {
        capsule = PyCapsule_New(made, "tensormsg.made", drop_made);
    } else if (packed == 0) {
        PyErr_SetString(PyExc_TypeError, "not a dict of arrays");
    }
    if (capsule == NULL) {
        tmsg_map_destroy(made->map);
        PyMem_Free(made);
        return NULL;
    }
    Py_INCREF(arrays);
    made->arrays = arrays;
    PyCapsule_SetContext(capsule, made->map);
    return capsule;
}
