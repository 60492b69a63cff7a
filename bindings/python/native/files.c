/* SPDX-License-Identifier: BSD-3-Clause */
#include "files.h"

#include <tensormsg/file.h>

#include "errors.h"
#include "kept.h"
#include "ops.h"
#include "pack.h"

/* Frees the map; its file stays mapped while something else has it. */
static void drop_file(PyObject *capsule)
{
    tmsg_map_destroy(PyCapsule_GetPointer(capsule, "tensormsg.file"));
}

PyObject *tmsgpy_file_load(PyObject *self, PyObject *args)
{
    tmsg_file_load_params_t params = {.field_mask =
                                          TMSG_FILE_LOAD_PARAM_FORMAT};
    PyThreadState *threads;
    PyObject *owner, *parts;
    tmsg_status_t status;
    const char *path;
    tmsg_map_t *map;
    int later;

    (void)self;
    if (!PyArg_ParseTuple(args, "yip", &path, &params.format, &later)) {
        return NULL;
    }
    threads = PyEval_SaveThread();
    status = tmsg_file_load(path, &params, &map);
    PyEval_RestoreThread(threads);
    if (status != TMSG_OK) {
        return tmsgpy_raise(status, tmsg_error_message(), NULL);
    }
    owner = PyCapsule_New(map, "tensormsg.file", drop_file);
    if (owner == NULL) {
        tmsg_map_destroy(map);
        return NULL;
    }
    parts = later ? tmsgpy_unpack_later(map, owner)
                  : tmsgpy_unpack_map(map, owner, NULL);
    Py_DECREF(owner);
    return parts;
}

PyObject *tmsgpy_file_save(PyObject *self, PyObject *args)
{
    tmsg_file_save_params_t params = {
        .field_mask = TMSG_FILE_SAVE_PARAM_FORMAT | TMSG_FILE_SAVE_PARAM_FLAGS};
    PyObject *data, *meta, *keep, *result;
    PyThreadState *threads;
    tmsg_status_t status;
    const char *path;
    tmsg_map_t *map;

    (void)self;
    if (!PyArg_ParseTuple(args, "yiIOO", &path, &params.format, &params.flags,
                          &data, &meta)) {
        return NULL;
    }
    map = tmsgpy_pack_new(data, meta, &keep, &result);
    if (map == NULL) {
        return result;
    }
    threads = PyEval_SaveThread();
    status = tmsg_file_save(map, path, &params);
    PyEval_RestoreThread(threads);
    tmsgpy_kept_give(map);
    Py_DECREF(keep);
    if (status != TMSG_OK) {
        return tmsgpy_raise(status, tmsg_error_message(), NULL);
    }
    Py_RETURN_NONE;
}
