/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls and what serves them: part of module tensormsg._hot. */
#include "calls.h"

#include <tensormsg/meta.h>
#include <tensormsg/server.h>

#include "blocks.h"
#include "errors.h"
#include "hub.h"
#include "kept.h"
#include "lent.h"
#include "ops.h"
#include "pack.h"
#include "streams.h"

/* What a call is made with. */
typedef struct {
    tmsgpy_hub_t *hub;
    tmsg_endpoint_t *endpoint;
    const char *method;
    tmsg_call_params_t params;
    int spin_us;
    tmsgpy_posted_t *posted; /* NULL: none */
} asked_t;

static PyObject *begin(const asked_t *asked, const tmsg_map_t *map,
                       tmsgpy_lent_t *lent)
{
    PyThreadState *threads;
    tmsg_status_t status = TMSG_ERR_CLOSED;
    tmsg_call_t *call = NULL;
    uint64_t until = tmsgpy_until(asked->spin_us);
    char *peer = NULL;
    bool open;

    threads = PyEval_SaveThread();
    open = tmsgpy_hub_enter(asked->hub);
    if (open) {
        tmsg_worker_t *worker = tmsgpy_hub_worker(asked->hub);

        status = tmsg_endpoint_call(asked->endpoint, asked->method, map,
                                    &asked->params, &call);
        while (status == TMSG_OK &&
               tmsg_call_status(call) == TMSG_IN_PROGRESS &&
               (tmsg_worker_progress(worker) > 0 ||
                tmsgpy_polls_on(worker, until))) {
        }
        peer = status != TMSG_OK ? tmsgpy_peer_words(asked->endpoint) : NULL;
        tmsgpy_hub_leave(asked->hub);
    }
    PyEval_RestoreThread(threads);
    if (status == TMSG_OK) {
        return tmsgpy_op_call(call, asked->posted);
    }
    tmsgpy_unlend(lent);
    return open ? tmsgpy_raise_of(status, tmsg_error_message(), peer)
                : tmsgpy_raise_closed();
}

static PyObject *call(PyObject *args, tmsgpy_posted_t *posted)
{
    tmsg_release_fn on_release = tmsgpy_on_release;
    PyObject *method, *keep, *result;
    tmsgpy_lent_t *lent;
    tmsg_map_t *map;
    asked_t asked;

    map = tmsgpy_pack_new(PyTuple_GetItem(args, 3), PyTuple_GetItem(args, 4),
                          &keep, &result);
    if (map == NULL) {
        return result;
    }
    method = PyUnicode_AsUTF8String(PyTuple_GetItem(args, 2));
    lent = (uint32_t)tmsgpy_int_at(args, 6) & TMSG_CALL_LEND
               ? tmsgpy_lend_frozen(keep, Py_None, &on_release)
               : tmsgpy_lend(keep);
    if (method == NULL && lent != NULL) {
        tmsgpy_unlend(lent);
    } else if (lent != NULL) {
        asked = (asked_t){
            tmsgpy_pointer_at(args, 0),
            tmsgpy_pointer_at(args, 1),
            PyBytes_AsString(method),
            {.field_mask = TMSG_CALL_PARAM_TIMEOUT | TMSG_CALL_PARAM_ON_DONE |
                           TMSG_CALL_PARAM_ON_RELEASE | TMSG_CALL_PARAM_FLAGS,
             .timeout_ms = tmsgpy_int_at(args, 5),
             .on_done = tmsgpy_on_done,
             .on_done_arg = tmsgpy_pointer_at(args, 0),
             .on_release = on_release,
             .on_release_arg = lent,
             .flags = (uint32_t)tmsgpy_int_at(args, 6),
             .retry = {.attempts = (uint32_t)tmsgpy_int_at(args, 7)}},
            tmsgpy_int_at(args, 8),
            posted};
        if (asked.params.retry.attempts != 1) {
            asked.params.field_mask |= TMSG_CALL_PARAM_RETRY;
        }
        if (posted != NULL) {
            asked.params.reply_into = tmsgpy_posted_map(posted);
            asked.params.field_mask |= TMSG_CALL_PARAM_REPLY_INTO;
        }
        result = begin(&asked, map, lent);
    }
    Py_XDECREF(method);
    tmsgpy_kept_give(map);
    return result;
}

/* call(hub, endpoint, method, data, meta, timeout_ms, flags, attempts,
 * spin_us, posted or None): an operation; NotImplemented where data has to be
 * converted; where a buffer is not free, what tmsgpy_posted_claim() says. */
PyObject *tmsgpy_call(PyObject *self, PyObject *args)
{
    tmsgpy_posted_t *posted;
    PyObject *result;

    (void)self;
    tmsgpy_drop_lent();
    if (!tmsgpy_takes(args, 10)) {
        return NULL;
    }
    if (PyTuple_GetItem(args, 9) == Py_None) {
        return call(args, NULL);
    }
    posted = PyCapsule_GetPointer(PyTuple_GetItem(args, 9), "tensormsg.posted");
    if (posted == NULL ||
        !tmsgpy_posted_claim(posted, tmsgpy_pointer_at(args, 0), &result)) {
        return posted == NULL ? NULL : result;
    }
    result = call(args, posted);
    tmsgpy_posted_forgo(posted);
    return result;
}

/* result(op): (status, reason, code, may have run, the reply's or the details'
 * parts or None) of a call that has ended. */
PyObject *tmsgpy_result(PyObject *self, PyObject *capsule)
{
    tmsgpy_op_t *op = tmsgpy_op_of(capsule);

    (void)self;
    tmsgpy_drop_lent();
    if (op == NULL) {
        return NULL;
    }
    if (op->posted != NULL && tmsg_call_status(op->call) == TMSG_OK) {
        tmsgpy_posted_taken(op->posted);
    }
    return tmsgpy_ending(capsule,
                         (tmsgpy_end_t){tmsg_call_status(op->call),
                                        tmsg_call_error(op->call),
                                        tmsg_call_code(op->call),
                                        tmsg_call_may_have_run(op->call)},
                         tmsg_call_reply(op->call));
}

/* As of messages (pack.c). */
static const char task_names[TMSGPY_NAMES][sizeof("tensormsg.task")] = {
    [0 ... TMSGPY_NAMES - 1] = "tensormsg.task"};

static const char *task_name(void)
{
    return task_names[tmsgpy_forks() % TMSGPY_NAMES];
}

static void drop_task(PyObject *capsule)
{
    if (PyCapsule_GetName(capsule) == task_name()) {
        tmsg_task_destroy(PyCapsule_GetPointer(capsule, "tensormsg.task"));
    }
}

static tmsg_task_t *task_of(PyObject *capsule)
{
    return PyCapsule_GetPointer(capsule, "tensormsg.task");
}

static PyObject *unpack_task(const tmsgpy_work_t *work)
{
    PyObject *owner = PyCapsule_New(work->task, task_name(), drop_task);
    PyObject *parts, *result = NULL;

    if (owner == NULL) {
        tmsg_task_destroy(work->task);
        return NULL;
    }
    parts = tmsgpy_unpack_map(tmsg_task_map(work->task), owner,
                              tmsg_task_endpoint(work->task));
    Py_DECREF(owner);
    if (parts != NULL) {
        result = Py_BuildValue("(iOzi)", work->index, parts,
                               tmsg_task_principal(work->task), 0);
        Py_DECREF(parts);
    }
    return result;
}

/* task(hub, timeout_ms, spin_us): (index of its method, parts, principal or
 * None, 0 or the number of the stream) of the next call or stream that came in;
 * None where there is none; False where the hub is closed. The owner among the
 * parts is the task, or the stream. */
PyObject *tmsgpy_task(PyObject *self, PyObject *args)
{
    PyThreadState *threads;
    tmsgpy_work_t work = {NULL, NULL, 0};
    tmsgpy_came_t came = {NULL, NULL};
    tmsgpy_hub_t *hub;
    int timeout_ms, spin_us;
    bool open;

    (void)self;
    tmsgpy_drop_lent();
    if (!tmsgpy_takes(args, 3)) {
        return NULL;
    }
    hub = tmsgpy_pointer_at(args, 0);
    timeout_ms = tmsgpy_int_at(args, 1);
    spin_us = tmsgpy_int_at(args, 2);
    threads = PyEval_SaveThread();
    open = tmsgpy_hub_enter(hub);
    if (open) {
        tmsgpy_hub_task(hub, timeout_ms, spin_us, &work);
        if (work.stream != NULL) {
            came = tmsgpy_take_stream(hub, &work);
        }
        tmsgpy_hub_leave(hub);
    }
    PyEval_RestoreThread(threads);
    if (work.stream != NULL) {
        return tmsgpy_unpack_stream(&work, came);
    }
    if (work.task != NULL) {
        return unpack_task(&work);
    }
    return open ? (Py_INCREF(Py_None), Py_None) : PyBool_FromLong(0);
}

/* answer(hub, task, data, meta, told, flags): (status, words) of it;
 * NotImplemented where data has to be converted. If it is OK, released() hands
 * out `told`, unless that is None, when the arrays may be changed. */
PyObject *tmsgpy_answer(PyObject *self, PyObject *args)
{
    tmsg_reply_params_t params = {.field_mask = TMSG_REPLY_PARAM_ON_RELEASE |
                                                TMSG_REPLY_PARAM_FLAGS,
                                  .on_release = tmsgpy_on_release};
    tmsg_status_t status = TMSG_ERR_UNAVAILABLE;
    PyThreadState *threads;
    PyObject *keep, *result = NULL;
    tmsg_task_t *task;
    tmsgpy_lent_t *lent;
    tmsgpy_hub_t *hub;
    tmsg_map_t *map;
    bool open;

    (void)self;
    if (!tmsgpy_takes(args, 6) ||
        (task = task_of(PyTuple_GetItem(args, 1))) == NULL) {
        return NULL;
    }
    hub = tmsgpy_pointer_at(args, 0);
    params.flags = (uint32_t)tmsgpy_int_at(args, 5);
    map = tmsgpy_pack_new(PyTuple_GetItem(args, 2), PyTuple_GetItem(args, 3),
                          &keep, &result);
    if (map == NULL) {
        return result;
    }
    lent = params.flags & TMSG_SEND_LEND
               ? tmsgpy_lend_frozen(keep, PyTuple_GetItem(args, 4),
                                    &params.on_release)
               : tmsgpy_lend_told(keep, PyTuple_GetItem(args, 4));
    if (lent != NULL) {
        params.on_release_arg = lent;
        threads = PyEval_SaveThread();
        open = tmsgpy_hub_enter(hub);
        if (open) {
            status = tmsg_task_reply(task, map, &params);
            tmsgpy_hub_leave(hub);
        }
        PyEval_RestoreThread(threads);
        result = tmsgpy_answered(status, open);
        if (status != TMSG_OK) {
            tmsgpy_unlend(lent);
        }
    }
    tmsgpy_kept_give(map);
    return result;
}

/* refuse(hub, task, status, code, words, data, meta): (status, words) of it;
 * NotImplemented where data, the details, have to be converted. */
PyObject *tmsgpy_refuse(PyObject *self, PyObject *args)
{
    tmsg_status_t status = TMSG_ERR_UNAVAILABLE;
    tmsgpy_failure_t failure;
    PyThreadState *threads;
    tmsg_task_t *task;
    tmsgpy_hub_t *hub;
    bool open;

    (void)self;
    if (!tmsgpy_takes(args, 7) ||
        (task = task_of(PyTuple_GetItem(args, 1))) == NULL) {
        return NULL;
    }
    if (!tmsgpy_failure_take(args, &failure)) {
        return failure.instead;
    }
    hub = tmsgpy_pointer_at(args, 0);
    threads = PyEval_SaveThread();
    open = tmsgpy_hub_enter(hub);
    if (open) {
        status = tmsg_task_fail(task, failure.status, failure.code,
                                failure.text, failure.details);
        tmsgpy_hub_leave(hub);
    }
    PyEval_RestoreThread(threads);
    return tmsgpy_failure_told(&failure, status, open);
}

/* task_state(task): (status, milliseconds left or -1). */
PyObject *tmsgpy_task_state(PyObject *self, PyObject *capsule)
{
    tmsg_task_t *task = task_of(capsule);

    (void)self;
    return task == NULL ? NULL
                        : Py_BuildValue("(ii)", (int)tmsg_task_status(task),
                                        tmsg_task_remaining_ms(task));
}

/* request_map(task or stream): the address of the map that it came with. */
PyObject *tmsgpy_request_map(PyObject *self, PyObject *capsule)
{
    (void)self;
    return PyLong_FromVoidPtr((
        void *)(PyCapsule_IsValid(capsule, "tensormsg.task")
                    ? tmsg_task_map(task_of(capsule))
                    : tmsg_call_stream_map(tmsgpy_stream_of(
                          PyCapsule_GetPointer(capsule, "tensormsg.stream")))));
}

/* task_put_off(task): None. It waits again, for a thread of an executor. */
PyObject *tmsgpy_task_put_off(PyObject *self, PyObject *capsule)
{
    tmsg_task_t *task = task_of(capsule);

    (void)self;
    if (task == NULL) {
        return NULL;
    }
    tmsg_task_put_off(task);
    return (Py_INCREF(Py_None), Py_None);
}

/* task_begin(task): whether its handler is to run: somebody waits for it. */
PyObject *tmsgpy_task_begin(PyObject *self, PyObject *capsule)
{
    tmsg_task_t *task = task_of(capsule);

    (void)self;
    return task == NULL ? NULL
                        : PyBool_FromLong(tmsg_task_begin(task) == TMSG_OK);
}
