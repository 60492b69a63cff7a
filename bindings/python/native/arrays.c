/* SPDX-License-Identifier: BSD-3-Clause */
#include "arrays.h"

#include <stdlib.h>
#include <string.h>

#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#define NPY_TARGET_VERSION NPY_1_22_API_VERSION
#include <numpy/arrayobject.h>

#define EXTRA_MAX 16

/* DLPack's structs, as its specification lays them out. */
typedef struct {
    void *data;
    tmsg_device_t device;
    int32_t ndim;
    tmsg_dtype_t dtype;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
} dl_tensor_t;

typedef struct dl_managed {
    dl_tensor_t dl;
    void *manager;
    void (*deleter)(struct dl_managed *self);
} dl_managed_t;

typedef struct dl_versioned {
    uint32_t major, minor;
    void *manager;
    void (*deleter)(struct dl_versioned *self);
    uint64_t flags;
    dl_tensor_t dl;
} dl_versioned_t;

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

static bool tensor_of_dlpack(const dl_tensor_t *dl, tmsg_tensor_t *tensor_p)
{
    *tensor_p = (tmsg_tensor_t){dl->data, dl->device, dl->dtype,
                                dl->ndim, dl->shape,  dl->strides};
    if (dl->data != NULL) {
        tensor_p->data = (char *)dl->data + dl->byte_offset;
    }
    return true;
}

bool tmsgpy_tensor_of(PyObject *value, tmsg_tensor_t *tensor_p,
                      int64_t *strides)
{
    if (PyArray_CheckExact(value)) {
        return tensor_of_array((PyArrayObject *)value, tensor_p, strides);
    }
    if (PyCapsule_IsValid(value, "dltensor")) {
        dl_managed_t *managed = PyCapsule_GetPointer(value, "dltensor");

        return tensor_of_dlpack(&managed->dl, tensor_p);
    }
    if (PyCapsule_IsValid(value, "dltensor_versioned")) {
        dl_versioned_t *managed =
            PyCapsule_GetPointer(value, "dltensor_versioned");

        return managed->major == 1 && tensor_of_dlpack(&managed->dl, tensor_p);
    }
    return false;
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
        strides[i] = (npy_intp)tensor->strides[i] * (known->bits / 8);
    }
    if (known->descr != NULL) {
        descr = known->descr;
        Py_INCREF(descr);
    } else {
        descr = PyArray_DescrFromType(known->type);
    }
    array = PyArray_NewFromDescr(
        &PyArray_Type, descr, tensor->ndim, (const npy_intp *)tensor->shape,
        tensor->strides == NULL ? NULL : strides, tensor->data,
        tensor->strides == NULL ? NPY_ARRAY_CARRAY : NPY_ARRAY_BEHAVED, NULL);
    if (array == NULL && tensor->ndim > 32 &&
        PyErr_ExceptionMatches(PyExc_ValueError)) {
        PyErr_Clear(); /* numpy 1 ends at 32 dimensions */
        Py_RETURN_NONE;
    }
    return own(array, owner);
}

PyObject *tmsgpy_bytes_of(const tmsg_tensor_t *tensor, PyObject *owner)
{
    uint64_t bytes = 0;
    npy_intp size;

    tmsg_tensor_bytes(tensor, &bytes);
    size = (npy_intp)bytes;
    return own(PyArray_NewFromDescr(&PyArray_Type,
                                    PyArray_DescrFromType(NPY_UINT8), 1, &size,
                                    NULL, tensor->data, NPY_ARRAY_CARRAY, NULL),
               owner);
}

typedef struct {
    dl_managed_t managed;
    PyObject *owner;
    int64_t extents[]; /* shape, strides */
} dl_export_t;

static void release_export(dl_managed_t *managed)
{
    dl_export_t *export = (dl_export_t *)managed;

    if (Py_IsInitialized()) {
        PyGILState_STATE state = PyGILState_Ensure();

        Py_DECREF(export->owner);
        PyGILState_Release(state);
    }
    free(export);
}

/* Who takes it renames the capsule. */
static void drop_capsule(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        dl_managed_t *managed = PyCapsule_GetPointer(capsule, "dltensor");

        managed->deleter(managed);
    }
}

PyObject *tmsgpy_dlpack_of(const tmsg_tensor_t *tensor, PyObject *owner)
{
    size_t ndim = (size_t)tensor->ndim;
    dl_export_t *export =
        malloc(sizeof(*export) + 2 * (ndim + 1) * sizeof(int64_t));
    int64_t *strides, step = 1;
    PyObject *capsule;

    if (export == NULL) {
        return PyErr_NoMemory();
    }
    strides = export->extents + ndim;
    for (size_t i = ndim; i-- > 0;) {
        export->extents[i] = tensor->shape[i];
        strides[i] = tensor->strides == NULL ? step : tensor->strides[i];
        step *= tensor->shape[i];
    }
    export->managed =
        (dl_managed_t){{tensor->data, tensor->device, tensor->ndim,
                        tensor->dtype, export->extents, strides, 0},
                       export,
                       release_export};
    export->owner = owner;
    Py_INCREF(owner);
    capsule = PyCapsule_New(&export->managed, "dltensor", drop_capsule);
    if (capsule == NULL) {
        release_export(&export->managed);
    }
    return capsule;
}
