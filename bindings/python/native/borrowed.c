/* SPDX-License-Identifier: BSD-3-Clause */
#include "borrowed.h"

#include <stdlib.h>

#include <tensormsg/shareable.h>

#include "errors.h"

typedef struct {
    PyObject *owner;
    void *memory;
    uint64_t bytes;
} mapped_t;

bool tmsgpy_is_borrowed(const tmsg_map_t *map)
{
    tmsg_tensor_t tensor;

    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        if (tmsg_map_at(map, i, NULL, &tensor) == TMSG_OK &&
            tmsg_shareable_is_borrowed(tensor.data)) {
            return true;
        }
    }
    return false;
}

bool tmsgpy_torch_is_there(void)
{
    PyObject *name = PyUnicode_FromString("torch");
    PyObject *torch = name == NULL ? NULL : PyImport_GetModule(name);

    Py_XDECREF(name);
    if (torch == NULL) {
        PyErr_Clear();
        return false;
    }
    Py_DECREF(torch);
    return true;
}

/* The loan goes after its mapping: later the pages may have other bytes. */
static void free_mapped(mapped_t *mapped)
{
    tmsg_shareable_unmap_copy(mapped->memory, mapped->bytes);
    Py_DECREF(mapped->owner);
    free(mapped);
}

static void drop_mapped(PyObject *capsule)
{
    free_mapped(PyCapsule_GetPointer(capsule, "tensormsg.mapped"));
}

/* Returns how many bytes lie before the first element, and in *bytes_p how many
 * there are from the lowest one to the highest. */
static uint64_t span(const tmsg_tensor_t *tensor, uint64_t *bytes_p)
{
    int64_t element = tensor->dtype.bits * tensor->dtype.lanes / 8;
    int64_t lowest = 0, highest = 0;

    if (tensor->strides == NULL) {
        (void)tmsg_tensor_bytes(tensor, bytes_p);
        return 0;
    }
    for (int i = 0; i < tensor->ndim; i++) {
        int64_t reach = (tensor->shape[i] - 1) * tensor->strides[i];

        *(reach < 0 ? &lowest : &highest) += reach;
    }
    *bytes_p = (uint64_t)((highest - lowest + 1) * element);
    return (uint64_t)(-lowest * element);
}

PyObject *tmsgpy_map_borrowed(const tmsg_tensor_t *tensor, PyObject *owner,
                              void **data_p)
{
    mapped_t *mapped = malloc(sizeof(*mapped));
    PyObject *capsule;
    tmsg_status_t status;
    uint64_t before;

    if (mapped == NULL) {
        return PyErr_NoMemory();
    }
    before = span(tensor, &mapped->bytes);
    status = tmsg_shareable_map_copy((uint8_t *)tensor->data - before,
                                     mapped->bytes, &mapped->memory);
    if (status != TMSG_OK) {
        free(mapped);
        return tmsgpy_raise(status, tmsg_error_message(), NULL);
    }
    Py_INCREF(owner);
    mapped->owner = owner;
    *data_p = (uint8_t *)mapped->memory + before;
    capsule = PyCapsule_New(mapped, "tensormsg.mapped", drop_mapped);
    if (capsule == NULL) {
        free_mapped(mapped);
    }
    return capsule;
}
