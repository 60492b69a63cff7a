/* SPDX-License-Identifier: BSD-3-Clause */
#include "ops.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tensormsg/endpoint.h>
#include <tensormsg/meta.h>

#include "arrays.h"
#include "errors.h"
#include "hub.h"
#include "kept.h"
#include "pack.h"

bool tmsgpy_op_is_over(const tmsgpy_op_t *op)
{
    tmsg_status_t status;

    if (op->call != NULL) {
        return tmsg_call_status(op->call) != TMSG_IN_PROGRESS;
    }
    status = tmsg_request_test(op->request);
    return status != TMSG_IN_PROGRESS && status != TMSG_CANCEL_PENDING;
}

/* What a request still reads is never given back: where the worker lives on
 * without us, it leaks. */
static void end(const tmsgpy_op_t *op)
{
    if (op->forks != tmsgpy_forks()) {
        return;
    }
    if (op->call != NULL) {
        tmsg_call_destroy(op->call);
        return;
    }
    if (tmsgpy_op_is_over(op)) {
        Py_DECREF(op->keep);
    }
    tmsg_request_destroy(op->request);
}

static void drop_op(PyObject *capsule)
{
    tmsgpy_op_t *op = tmsgpy_op_of(capsule);

    if (op->posted != NULL) {
        tmsgpy_posted_call(op->posted, NULL);
    }
    end(op);
    if (op->posted != NULL) {
        tmsgpy_posted_drop(op->posted);
    }
    PyMem_Free(op);
}

PyObject *tmsgpy_op_make(tmsg_request_t *request, PyObject *keep,
                         tmsg_call_t *call)
{
    const tmsgpy_op_t made = {request, keep, call, NULL, tmsgpy_forks()};
    tmsgpy_op_t *op = PyMem_Malloc(sizeof(*op));
    PyObject *capsule = NULL;

    if (op != NULL) {
        *op = made;
        capsule = PyCapsule_New(op, "tensormsg.op", drop_op);
    }
    if (capsule == NULL) {
        PyMem_Free(op);
        end(&made);
        PyErr_NoMemory();
    }
    return capsule;
}

PyObject *tmsgpy_op_call(tmsg_call_t *call, tmsgpy_posted_t *posted)
{
    PyObject *capsule = tmsgpy_op_make(NULL, NULL, call);

    if (capsule != NULL && posted != NULL) {
        tmsgpy_op_of(capsule)->posted = posted;
        tmsgpy_posted_hold(posted);
        tmsgpy_posted_call(posted, call);
    }
    return capsule;
}

tmsgpy_op_t *tmsgpy_op_of(PyObject *capsule)
{
    return PyCapsule_GetPointer(capsule, "tensormsg.op");
}

bool tmsgpy_takes(PyObject *args, Py_ssize_t count)
{
    if (PyTuple_Size(args) != count) {
        PyErr_SetString(PyExc_TypeError, "wrong number of arguments");
        return false;
    }
    return true;
}

void *tmsgpy_pointer_at(PyObject *args, Py_ssize_t index)
{
    return PyLong_AsVoidPtr(PyTuple_GetItem(args, index));
}

int tmsgpy_int_at(PyObject *args, Py_ssize_t index)
{
    return (int)PyLong_AsLong(PyTuple_GetItem(args, index));
}

uint64_t tmsgpy_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

uint64_t tmsgpy_until(int spin_us)
{
    return spin_us > 0 ? tmsgpy_now_ns() + (uint64_t)spin_us * 1000 : 0;
}

bool tmsgpy_polls_on(tmsg_worker_t *worker, uint64_t until)
{
    return until != 0 && tmsgpy_now_ns() < until && tmsg_worker_pause(worker);
}

void tmsgpy_spin(tmsg_worker_t *worker, const tmsg_request_t *request,
                 int spin_us)
{
    uint64_t until = tmsgpy_until(spin_us);

    while (
        tmsg_request_test(request) == TMSG_IN_PROGRESS &&
        (tmsg_worker_progress(worker) > 0 || tmsgpy_polls_on(worker, until))) {
    }
}

/* The dict; or, if other threads run while it is packed, a copy of it. */
static PyObject *unshared(PyObject *data)
{
    if (PyDict_CheckExact(data) && PyDict_Size(data) >= TMSGPY_SLICE) {
        return PyDict_Copy(data);
    }
    Py_INCREF(data);
    return data;
}

/* The values first: the list of them may have the collector run, and with it
 * what changes the dict. Nothing in tmsgpy_pack() does; later others may. */
static tmsg_map_t *pack_unshared(PyObject *data, PyObject *meta,
                                 PyObject **keep_p, PyObject **result_p)
{
    PyObject *keep = PyDict_CheckExact(data) ? PyDict_Values(data) : NULL;
    tmsg_map_t *map = NULL;
    bool filled;
    int packed;

    if (keep == NULL && PyErr_Occurred()) {
        return NULL;
    }
    map = tmsgpy_kept_take(data, &filled);
    if (map == NULL) {
        Py_XDECREF(keep);
        PyErr_NoMemory();
        return NULL;
    }
    packed =
        filled ? tmsgpy_pack_meta(meta, map) : tmsgpy_pack(data, meta, map);
    if (packed == 1) {
        *keep_p = keep;
        return map;
    }
    tmsgpy_kept_give_back(map);
    Py_XDECREF(keep);
    if (packed == 0) {
        Py_INCREF(Py_NotImplemented);
        *result_p = Py_NotImplemented;
    }
    return NULL;
}

tmsg_map_t *tmsgpy_pack_new(PyObject *data, PyObject *meta, PyObject **keep_p,
                            PyObject **result_p)
{
    PyObject *own = unshared(data);
    tmsg_map_t *map = NULL;

    *result_p = NULL;
    if (own != NULL) {
        map = pack_unshared(own, meta, keep_p, result_p);
        Py_DECREF(own);
    }
    return map;
}

/* The tensor with each element once that strides of 0 repeat; in `shape`. */
static tmsg_tensor_t once(const tmsg_tensor_t *tensor, int64_t *shape)
{
    tmsg_tensor_t made = *tensor;

    for (int i = 0; i < tensor->ndim; i++) {
        bool repeats = tensor->strides != NULL && tensor->strides[i] == 0;

        shape[i] = repeats && tensor->shape[i] > 1 ? 1 : tensor->shape[i];
    }
    made.shape = shape;
    return made;
}

/* Those of C order for the shape of once(), in which the tensor repeats what it
 * did. */
static void strides_of(const tmsg_tensor_t *tensor, const int64_t *shape,
                       int64_t *strides)
{
    int64_t stride = 1;

    for (int i = tensor->ndim; i-- > 0;) {
        strides[i] = shape[i] == tensor->shape[i] ? stride : 0;
        stride *= shape[i] > 0 ? shape[i] : 1;
    }
}

/* Whether its elements, which are whole bytes, lie as its strides say. */
static bool has_span(const tmsg_tensor_t *tensor)
{
    bool is = tensor->strides != NULL &&
              tensor->dtype.bits * tensor->dtype.lanes % 8 == 0;

    for (int i = 0; i < tensor->ndim; i++) {
        is = is && tensor->shape[i] > 0;
    }
    return is;
}

/* The row of all that lies from its lowest element to its highest, as long as
 * *elements_p, and how many bytes of it are before its first one. */
static tmsg_tensor_t span(const tmsg_tensor_t *tensor, int64_t *elements_p,
                          int64_t *before_p)
{
    const int64_t bytes = tensor->dtype.bits * tensor->dtype.lanes / 8;
    tmsg_tensor_t made = *tensor;
    int64_t lowest = 0, highest = 0;

    for (int i = 0; i < tensor->ndim; i++) {
        int64_t reach = (tensor->shape[i] - 1) * tensor->strides[i];

        *(reach < 0 ? &lowest : &highest) += reach;
    }
    *elements_p = highest - lowest + 1;
    *before_p = -lowest * bytes;
    made.data = (char *)tensor->data - *before_p;
    made.ndim = 1;
    made.shape = elements_p;
    made.strides = NULL;
    return made;
}

/* How a tensor of a map is copied. */
typedef struct {
    const char *name;
    tmsg_tensor_t tensor;
    tmsg_tensor_t plain; /* what is packed of it, of the shape below */
    int64_t shape[TMSGPY_NDIM_MAX];
    int64_t before;
    uint64_t bytes; /* of the copy */
    bool gaps;
} source_t;

static tmsg_status_t look_at(const tmsg_map_t *from, size_t index, bool gaps,
                             source_t *source)
{
    tmsg_status_t status =
        tmsg_map_at(from, index, &source->name, &source->tensor);

    if (status != TMSG_OK) {
        return status;
    }
    source->before = 0;
    source->gaps = gaps && has_span(&source->tensor);
    source->plain = source->gaps
                        ? span(&source->tensor, source->shape, &source->before)
                        : once(&source->tensor, source->shape);
    return tmsg_tensor_bytes(&source->plain, &source->bytes);
}

uint64_t tmsgpy_copy_bytes(const tmsg_map_t *from, size_t index, bool gaps)
{
    source_t source;

    return look_at(from, index, gaps, &source) == TMSG_OK ? source.bytes
                                                          : UINT64_MAX;
}

tmsg_status_t tmsgpy_copy_tensor(const tmsg_map_t *from, size_t index,
                                 bool gaps, tmsg_map_t *to)
{
    tmsg_map_add_params_t owned = {.field_mask = TMSG_MAP_ADD_PARAM_RELEASE,
                                   .release = free};
    int64_t strides[TMSGPY_NDIM_MAX];
    source_t source;
    tmsg_tensor_t tensor;
    tmsg_status_t status = look_at(from, index, gaps, &source);

    if (status != TMSG_OK) {
        return status;
    }
    owned.release_arg = malloc(source.bytes > 0 ? source.bytes : 1);
    if (owned.release_arg == NULL) {
        return TMSG_ERR_NO_MEMORY;
    }
    status = tmsg_tensor_pack(&source.plain, owned.release_arg);
    if (status == TMSG_OK) {
        tensor = source.tensor;
        if (!source.gaps) {
            strides_of(&tensor, source.shape, strides);
            tensor.strides = strides;
        }
        tensor.data = (char *)owned.release_arg + source.before;
        status = tmsg_map_add(to, source.name, &tensor, &owned);
    }
    if (status != TMSG_OK) {
        free(owned.release_arg);
    }
    return status;
}

tmsg_status_t tmsgpy_copy_map(const tmsg_map_t *map, bool gaps,
                              tmsg_map_t **copy_p, const char **failed_p)
{
    tmsg_map_t *made;
    tmsg_status_t status = tmsg_map_create(&made);

    *failed_p = NULL;
    if (status != TMSG_OK) {
        return status;
    }
    for (size_t i = 0; i < tmsg_map_meta_size(map) && status == TMSG_OK; i++) {
        const char *key;
        tmsg_meta_t meta;

        tmsg_map_meta_at(map, i, &key, &meta);
        status = tmsg_map_set_meta(made, key, &meta);
    }
    for (size_t i = 0; i < tmsg_map_size(map) && status == TMSG_OK; i++) {
        status = tmsgpy_copy_tensor(map, i, gaps, made);
        if (status != TMSG_OK) {
            tmsg_map_at(map, i, failed_p, NULL);
        }
    }
    if (status != TMSG_OK) {
        tmsg_map_destroy(made);
        return status;
    }
    *copy_p = made;
    return TMSG_OK;
}

PyObject *tmsgpy_raise_copy(tmsg_status_t status, const char *failed)
{
    if (status == TMSG_ERR_NO_MEMORY) {
        return PyErr_NoMemory();
    }
    if (failed == NULL) {
        return tmsgpy_raise(status, tmsg_error_message(), NULL);
    }
    tmsgpy_refuse_tensor(status, failed);
    return NULL;
}

bool tmsgpy_failure_take(PyObject *args, tmsgpy_failure_t *failure_p)
{
    PyObject *keep;
    tmsg_map_t *map =
        tmsgpy_pack_new(PyTuple_GetItem(args, 5), PyTuple_GetItem(args, 6),
                        &keep, &failure_p->instead);
    const char *failed = NULL;
    tmsg_status_t status;

    if (map == NULL) {
        return false;
    }
    failure_p->instead = NULL;
    failure_p->status = (tmsg_status_t)tmsgpy_int_at(args, 2);
    failure_p->code = tmsgpy_int_at(args, 3);
    failure_p->words = PyUnicode_AsUTF8String(PyTuple_GetItem(args, 4));
    failure_p->details = NULL;
    status = failure_p->words == NULL
                 ? TMSG_OK
                 : tmsgpy_copy_map(map, false, &failure_p->details, &failed);
    if (failure_p->details == NULL && failure_p->words != NULL) {
        tmsgpy_raise_copy(status, failed);
    }
    tmsgpy_kept_give(map);
    Py_DECREF(keep);
    if (failure_p->details == NULL) {
        Py_XDECREF(failure_p->words);
        return false;
    }
    failure_p->text = PyBytes_AsString(failure_p->words);
    return true;
}

PyObject *tmsgpy_failure_told(tmsgpy_failure_t *failure, tmsg_status_t status,
                              bool open)
{
    PyObject *answered = tmsgpy_answered(status, open);

    tmsg_map_destroy(failure->details);
    Py_DECREF(failure->words);
    return answered;
}

PyObject *tmsgpy_ending(PyObject *owner, tmsgpy_end_t end,
                        const tmsg_map_t *map)
{
    PyObject *parts, *result;

    if (map == NULL) {
        parts = Py_None;
        Py_INCREF(parts);
    } else {
        parts = tmsgpy_unpack_map(map, owner, NULL);
    }
    if (parts == NULL) {
        return NULL;
    }
    result = Py_BuildValue("(isiiO)", (int)end.status, end.error, end.code,
                           end.may_have_run, parts);
    Py_DECREF(parts);
    return result;
}
