/* SPDX-License-Identifier: BSD-3-Clause */
/* What is sent from memory of a device: part of module tensormsg._hot. */
#include "device.h"

#include <string.h>

#include "errors.h"

#define CAPSULE "tensormsg.device"

static void drop(PyObject *capsule)
{
    tmsgpy_device_t *device = PyCapsule_GetPointer(capsule, CAPSULE);

    Py_DECREF(device->owner);
    PyMem_Free(device);
}

/* Takes the memory, but not a reference of the owner's, on failure as well. */
static PyObject *wrap(tmsgpy_device_t *device)
{
    PyObject *capsule = PyCapsule_New(device, CAPSULE, drop);

    if (capsule == NULL) {
        PyMem_Free(device);
        return NULL;
    }
    Py_INCREF(device->owner);
    return capsule;
}

static tmsg_stream_t stream_of(unsigned long long handle)
{
    return handle == 0 ? (tmsg_stream_t){TMSG_STREAM_NONE, 0}
                       : (tmsg_stream_t){TMSG_STREAM_CUDA, handle};
}

const tmsgpy_device_t *tmsgpy_device_of(PyObject *value)
{
    return PyCapsule_IsValid(value, CAPSULE)
               ? PyCapsule_GetPointer(value, CAPSULE)
               : NULL;
}

bool tmsgpy_is_host(const tmsg_tensor_t *tensor)
{
    return tensor->device.type == TMSG_DEVICE_CPU ||
           tensor->device.type == TMSG_DEVICE_CUDA_HOST;
}

int tmsgpy_capsule_of(const char *name, PyObject *capsule,
                      tmsg_tensor_t *tensor_p, int64_t *strides)
{
    int rc = PyCapsule_CheckExact(capsule)
                 ? tmsgpy_tensor_of(capsule, tensor_p, strides)
                 : 0;

    if (rc == 0) {
        PyErr_Format(PyExc_TypeError,
                     "'%s': its __dlpack__() gave no capsule of DLPack's, but "
                     "%R",
                     name, capsule);
    } else if (rc < 0) {
        tmsgpy_refuse_tensor((tmsg_status_t)rc, name);
    }
    return rc == 1 ? 0 : -1;
}

/* device_tensor(name, capsule, stream): what is in a capsule of DLPack's, with
 * CUDA's number of a stream, or 0. */
PyObject *tmsgpy_device_tensor(PyObject *self, PyObject *args)
{
    unsigned long long handle;
    tmsgpy_device_t *device;
    PyObject *owner;
    const char *name;

    (void)self;
    if (!PyArg_ParseTuple(args, "sOK", &name, &owner, &handle)) {
        return NULL;
    }
    device = PyMem_Malloc(sizeof(*device));
    if (device == NULL) {
        return PyErr_NoMemory();
    }
    device->owner = owner;
    device->stream = stream_of(handle);
    if (tmsgpy_capsule_of(name, owner, &device->tensor, device->strides) == 0) {
        return wrap(device);
    }
    PyMem_Free(device);
    return NULL;
}

static bool read_numbers(PyObject *tuple, int32_t count, int64_t *numbers)
{
    if (PyTuple_Size(tuple) != count) {
        return false;
    }
    for (int32_t i = 0; i < count; i++) {
        numbers[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
    }
    return !PyErr_Occurred();
}

/* device_memory(owner, address, (type, number), dtype, shape, strides, stream):
 * memory that the owner keeps. dtype by its name; strides in elements, or
 * None. */
PyObject *tmsgpy_device_memory(PyObject *self, PyObject *args)
{
    unsigned long long address, handle;
    PyObject *owner, *shape, *strides;
    tmsgpy_device_t *device;
    tmsg_tensor_t tensor;
    const char *dtype;

    (void)self;
    if (!PyArg_ParseTuple(args, "OK(ii)sO!OK", &owner, &address,
                          &tensor.device.type, &tensor.device.id, &dtype,
                          &PyTuple_Type, &shape, &strides, &handle)) {
        return NULL;
    }
    device = PyMem_Malloc(sizeof(*device));
    if (device == NULL) {
        return PyErr_NoMemory();
    }
    tensor.data = (void *)(uintptr_t)address;
    tensor.ndim = (int32_t)PyTuple_Size(shape);
    tensor.shape = device->shape;
    tensor.strides = strides == Py_None ? NULL : device->strides;
    if (tensor.ndim > TMSGPY_NDIM_MAX ||
        tmsg_dtype_parse(dtype, &tensor.dtype) != TMSG_OK ||
        !read_numbers(shape, tensor.ndim, device->shape) ||
        (strides != Py_None &&
         !read_numbers(strides, tensor.ndim, device->strides))) {
        PyMem_Free(device);
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError,
                            "a dtype, shape or strides that no tensor has");
        }
        return NULL;
    }
    device->owner = owner;
    device->tensor = tensor;
    device->stream = stream_of(handle);
    return wrap(device);
}
