/* SPDX-License-Identifier: BSD-3-Clause */
#include "arrays.h"

#include <tensormsg/dlpack.h>
#include <tensormsg/shareable.h>

#include "borrowed.h"

#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#define NPY_TARGET_VERSION NPY_1_22_API_VERSION
#include <numpy/arrayobject.h>

#define EXTRA_MAX 16
#define ALIGNMENT 16 /* enough for every dtype */

#define PLAIN "dltensor" /* what DLPack calls its capsules */
#define VERSIONED "dltensor_versioned"

typedef struct {
    int type; /* numpy's number of it */
    uint8_t code, bits;
    PyArray_Descr *descr;
} known_t;

#define KNOWN(type, code, bits)                                                \
    {                                                                          \
        type, TMSG_DTYPE_##code, bits, NULL                                    \
    }

static const known_t builtin[] = {
    KNOWN(NPY_FLOAT32, FLOAT, 32),
    KNOWN(NPY_FLOAT64, FLOAT, 64),
    KNOWN(NPY_UINT8, UINT, 8),
    KNOWN(NPY_INT64, INT, 64),
    KNOWN(NPY_INT32, INT, 32),
    KNOWN(NPY_BOOL, BOOL, 8),
    KNOWN(NPY_FLOAT16, FLOAT, 16),
    KNOWN(NPY_INT8, INT, 8),
    KNOWN(NPY_INT16, INT, 16),
    KNOWN(NPY_UINT16, UINT, 16),
    KNOWN(NPY_UINT32, UINT, 32),
    KNOWN(NPY_UINT64, UINT, 64),
    KNOWN(NPY_COMPLEX64, COMPLEX, 64),
    KNOWN(NPY_COMPLEX128, COMPLEX, 128),
    /* of the same width as one above, on this machine */
    KNOWN(NPY_LONGLONG, INT, 64),
    KNOWN(NPY_ULONGLONG, UINT, 64),
};

static known_t extra[EXTRA_MAX]; /* with a reference to each descr */
static size_t extra_count;

int tmsgpy_arrays_init(void)
{
    import_array1(-1);
    return 0;
}

int tmsgpy_arrays_register(PyObject *descr, int code, int bits)
{
    if (!PyArray_DescrCheck(descr) || extra_count == EXTRA_MAX) {
        PyErr_SetString(PyExc_ValueError, "not a dtype, or one too many");
        return -1;
    }
    Py_INCREF(descr);
    extra[extra_count++] =
        (known_t){((PyArray_Descr *)descr)->type_num, (uint8_t)code,
                  (uint8_t)bits, (PyArray_Descr *)descr};
    return 0;
}

static const known_t *known_by_type(int type)
{
    for (size_t i = 0; i < sizeof(builtin) / sizeof(builtin[0]); i++) {
        if (builtin[i].type == type) {
            return &builtin[i];
        }
    }
    for (size_t i = 0; i < extra_count; i++) {
        if (extra[i].type == type) {
            return &extra[i];
        }
    }
    return NULL;
}

static const known_t *known_by_dtype(tmsg_dtype_t dtype)
{
    if (dtype.lanes != 1) {
        return NULL;
    }
    for (size_t i = 0; i < sizeof(builtin) / sizeof(builtin[0]); i++) {
        if (builtin[i].code == dtype.code && builtin[i].bits == dtype.bits) {
            return &builtin[i];
        }
    }
    for (size_t i = 0; i < extra_count; i++) {
        if (extra[i].code == dtype.code && extra[i].bits == dtype.bits) {
            return &extra[i];
        }
    }
    return NULL;
}

static bool tensor_of_array(PyArrayObject *array, tmsg_tensor_t *tensor_p,
                            int64_t *strides)
{
    const known_t *known = known_by_type(PyArray_TYPE(array));
    int ndim = PyArray_NDIM(array);

    if (known == NULL || PyArray_ISBYTESWAPPED(array) ||
        ndim > TMSGPY_NDIM_MAX) {
        return false;
    }
    *tensor_p = (tmsg_tensor_t){
        .data = PyArray_DATA(array),
        .device = {TMSG_DEVICE_CPU, 0},
        .dtype = {known->code, known->bits, 1},
        .ndim = ndim,
        .shape = (const int64_t *)PyArray_DIMS(array),
    };
    if (!PyArray_IS_C_CONTIGUOUS(array)) {
        for (int i = 0; i < ndim; i++) {
            int64_t bytes = PyArray_STRIDES(array)[i];

            if (bytes % (known->bits / 8) != 0) {
                return false; /* a field of a record: to be copied */
            }
            strides[i] = bytes / (known->bits / 8);
        }
        tensor_p->strides = strides;
    }
    return true;
}

int tmsgpy_tensor_of(PyObject *value, tmsg_tensor_t *tensor_p, int64_t *strides)
{
    tmsg_status_t status;

    if (PyArray_CheckExact(value)) {
        return tensor_of_array((PyArrayObject *)value, tensor_p, strides);
    }
    if (PyCapsule_IsValid(value, PLAIN)) {
        status = tmsg_tensor_from_dlpack(PyCapsule_GetPointer(value, PLAIN),
                                         tensor_p);
    } else if (PyCapsule_IsValid(value, VERSIONED)) {
        status = tmsg_tensor_from_dlpack_versioned(
            PyCapsule_GetPointer(value, VERSIONED), tensor_p, NULL);
    } else {
        return 0;
    }
    return status == TMSG_OK ? 1 : (int)status;
}

static PyObject *own(PyObject *array, PyObject *owner)
{
    if (array == NULL) {
        return NULL;
    }
    Py_INCREF(owner);
    if (PyArray_SetBaseObject((PyArrayObject *)array, owner) != 0) {
        Py_DECREF(array);
        return NULL;
    }
    return array;
}

/* For how many places of an array that is not empty each element is there. */
static uint64_t repeats(const tmsg_tensor_t *tensor)
{
    uint64_t product = 1;

    for (int i = 0; tensor->strides != NULL && i < tensor->ndim; i++) {
        product *= tensor->strides[i] == 0 ? (uint64_t)tensor->shape[i] : 1;
    }
    return product;
}

/* How the elements of an array lie, each once. */
typedef struct {
    bool loose;   /* with gaps, backwards or one above the other */
    bool overlap; /* the last of these */
} lie_t;

static bool is_empty(const tmsg_tensor_t *tensor)
{
    for (int i = 0; i < tensor->ndim; i++) {
        if (tensor->shape[i] == 0) {
            return true;
        }
    }
    return false;
}

/* Of an extent of 1, or in an empty array, it may be any number. */
static uint64_t step_of(const tmsg_tensor_t *tensor, int i)
{
    int64_t stride = tensor->strides[i];

    return stride < 0 ? -(uint64_t)stride : (uint64_t)stride;
}

static lie_t lie_of(const tmsg_tensor_t *tensor)
{
    bool seen[TMSGPY_NDIM_MAX] = {false};
    lie_t lie = {false, false};
    int64_t reach = 0; /* of the dimensions with the shorter strides */

    if (is_empty(tensor)) {
        return lie;
    }

    for (int n = 0; tensor->strides != NULL && n < tensor->ndim; n++) {
        int next = -1;

        for (int i = 0; i < tensor->ndim; i++) {
            if (!seen[i] &&
                (next < 0 || step_of(tensor, i) < step_of(tensor, next))) {
                next = i;
            }
        }
        seen[next] = true;
        if (tensor->shape[next] > 1 && tensor->strides[next] != 0) {
            int64_t step = (int64_t)step_of(tensor, next);

            lie.loose |= tensor->strides[next] != reach + 1;
            lie.overlap |= step <= reach;
            reach += (tensor->shape[next] - 1) * step;
        }
    }
    return lie;
}

/* Of what is not in C order; one in which elements share their place is to be
 * read, as those that numpy makes. */
static int flags_of(const tmsg_tensor_t *tensor)
{
    return repeats(tensor) > 1 || lie_of(tensor).overlap ? NPY_ARRAY_ALIGNED
                                                         : NPY_ARRAY_BEHAVED;
}

/* Views the memory of a tensor. What a peer lends is to be read. Where torch
 * is, it is mapped once more: torch.from_numpy() and its kin take memory that
 * is read-only, and let one write to it, which would end the process. Where it
 * cannot be mapped they are as without torch. */
static PyObject *view_memory(const tmsg_tensor_t *tensor, PyArray_Descr *descr,
                             int ndim, const npy_intp *shape,
                             const npy_intp *strides, int flags,
                             PyObject *owner)
{
    void *data = tensor->data;
    PyObject *mapped = NULL, *array;

    if (tmsg_shareable_is_borrowed(data)) {
        flags &= ~NPY_ARRAY_WRITEABLE;
        if (tmsgpy_torch_is_there()) {
            mapped = tmsgpy_map_borrowed(tensor, owner, &data);
        }
        PyErr_Clear();
    }
    array = PyArray_NewFromDescr(&PyArray_Type, descr, ndim, shape, strides,
                                 data, flags, NULL);
    if (array != NULL) {
        array = own(array, mapped != NULL ? mapped : owner);
    }
    if (array != NULL && (uintptr_t)data % ALIGNMENT != 0) {
        PyArray_UpdateFlags((PyArrayObject *)array, NPY_ARRAY_ALIGNED);
    }
    Py_XDECREF(mapped);
    return array;
}

PyObject *tmsgpy_array_of(const tmsg_tensor_t *tensor, PyObject *owner)
{
    const known_t *known = known_by_dtype(tensor->dtype);
    npy_intp strides[TMSGPY_NDIM_MAX];
    PyArray_Descr *descr;
    PyObject *array;

    if (known == NULL || tensor->device.type != TMSG_DEVICE_CPU) {
        Py_RETURN_NONE;
    }
    for (int i = 0; tensor->strides != NULL && i < tensor->ndim; i++) {
        strides[i] =
            (npy_intp)((uint64_t)tensor->strides[i] * (known->bits / 8u));
    }
    if (known->descr != NULL) {
        descr = known->descr;
        Py_INCREF(descr);
    } else {
        descr = PyArray_DescrFromType(known->type);
    }
    array = view_memory(
        tensor, descr, tensor->ndim, (const npy_intp *)tensor->shape,
        tensor->strides == NULL ? NULL : strides,
        tensor->strides == NULL ? NPY_ARRAY_CARRAY : flags_of(tensor), owner);
    /* numpy 1 ends at 32 dimensions, and an empty array may be too large. */
    if (array == NULL && PyErr_ExceptionMatches(PyExc_ValueError)) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    return array;
}

bool tmsgpy_is_of_another(PyObject *value, PyObject *owner)
{
    return PyArray_Check(value) &&
           PyArray_BASE((PyArrayObject *)value) != owner;
}

static bool is_writable(PyObject *capsule)
{
    tmsg_tensor_t tensor;
    uint64_t flags;

    return PyCapsule_IsValid(capsule, VERSIONED) &&
           tmsg_tensor_from_dlpack_versioned(
               PyCapsule_GetPointer(capsule, VERSIONED), &tensor, &flags) ==
               TMSG_OK &&
           (flags & TMSG_DLPACK_READ_ONLY) == 0;
}

PyObject *tmsgpy_view_of(const tmsg_tensor_t *tensor, PyObject *capsule)
{
    PyObject *made = tmsgpy_array_of(tensor, capsule);

    if (made != NULL && made != Py_None) {
        if (!is_writable(capsule)) {
            PyArray_CLEARFLAGS((PyArrayObject *)made, NPY_ARRAY_WRITEABLE);
        }
    }
    return made;
}

static PyObject *packed(const tmsg_tensor_t *tensor, npy_intp size)
{
    PyObject *array = PyArray_SimpleNew(1, &size, NPY_UINT8);

    if (array != NULL &&
        tmsg_tensor_pack(tensor, PyArray_DATA((PyArrayObject *)array)) !=
            TMSG_OK) {
        PyErr_SetString(PyExc_TypeError, tmsg_error_message());
        Py_DECREF(array);
        return NULL;
    }
    return array;
}

PyObject *tmsgpy_bytes_of(const tmsg_tensor_t *tensor, PyObject *owner)
{
    uint64_t bytes = 0;
    npy_intp size;

    if (tensor->device.type != TMSG_DEVICE_CPU) {
        PyErr_SetString(PyExc_TypeError, "it is in memory of a device");
        return NULL;
    }
    tmsg_tensor_bytes(tensor, &bytes);
    if (bytes > 0 && lie_of(tensor).loose) {
        size = (npy_intp)bytes;
        return packed(tensor, size);
    }
    size = (npy_intp)(bytes == 0 ? 0 : bytes / repeats(tensor));
    return view_memory(tensor, PyArray_DescrFromType(NPY_UINT8), 1, &size, NULL,
                       NPY_ARRAY_CARRAY, owner);
}

PyObject *tmsgpy_bytes_at(void *memory, Py_ssize_t bytes, PyObject *owner)
{
    npy_intp size = bytes;

    return own(PyArray_NewFromDescr(&PyArray_Type,
                                    PyArray_DescrFromType(NPY_UINT8), 1, &size,
                                    NULL, memory, NPY_ARRAY_CARRAY, NULL),
               owner);
}

bool tmsgpy_array_freeze(PyObject *value)
{
    PyArrayObject *array = (PyArrayObject *)value;

    if (!PyArray_CheckExact(value) || !PyArray_ISWRITEABLE(array)) {
        return false;
    }
    PyArray_CLEARFLAGS(array, NPY_ARRAY_WRITEABLE);
    return true;
}

void tmsgpy_array_thaw(PyObject *array)
{
    PyArray_ENABLEFLAGS((PyArrayObject *)array, NPY_ARRAY_WRITEABLE);
}

/* Capsules that nobody took; who takes one renames it. */
static void drop_plain(PyObject *capsule)
{
    void *managed = PyCapsule_IsValid(capsule, PLAIN)
                        ? PyCapsule_GetPointer(capsule, PLAIN)
                        : NULL;

    tmsg_dlpack_destroy(managed);
}

static void drop_versioned(PyObject *capsule)
{
    void *managed = PyCapsule_IsValid(capsule, VERSIONED)
                        ? PyCapsule_GetPointer(capsule, VERSIONED)
                        : NULL;

    tmsg_dlpack_destroy_versioned(managed);
}

tmsg_status_t tmsgpy_dlpack_of(const tmsg_map_t *map, const char *name,
                               bool versioned, PyObject **capsule_p)
{
    struct DLManagedTensorVersioned *with = NULL;
    struct DLManagedTensor *plain = NULL;
    tmsg_status_t status = versioned
                               ? tmsg_map_to_dlpack_versioned(map, name, &with)
                               : tmsg_map_to_dlpack(map, name, &plain);

    if (status != TMSG_OK) {
        return status;
    }
    *capsule_p = versioned ? PyCapsule_New(with, VERSIONED, drop_versioned)
                           : PyCapsule_New(plain, PLAIN, drop_plain);
    if (*capsule_p == NULL) {
        tmsg_dlpack_destroy(plain);
        tmsg_dlpack_destroy_versioned(with);
    }
    return TMSG_OK;
}
