/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions of libzip that src/serialize calls. Each goes on to that of the
 * library, whose own needs (zlib, bzip2, OpenSSL) a process without .npz files
 * does not load. */
#include "late_zip.h"

#ifndef TMSGPY_ZIP /* it is linked in */

PyObject *tmsgpy_load_zip(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    Py_RETURN_NONE;
}

#else

#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>

#include <zip.h>

#define FUNCTIONS(F)                                                           \
    F(int, zip_close, (zip_t * zip), (zip))                                    \
    F(void, zip_discard, (zip_t * zip), (zip))                                 \
    F(int, zip_error_code_zip, (const zip_error_t *error), (error))            \
    F(void, zip_error_fini, (zip_error_t * error), (error))                    \
    F(void, zip_error_init, (zip_error_t * error), (error))                    \
    F(void, zip_error_init_with_code, (zip_error_t * error, int code),         \
      (error, code))                                                           \
    F(void, zip_error_set, (zip_error_t * error, int code, int system),        \
      (error, code, system))                                                   \
    F(const char *, zip_error_strerror, (zip_error_t * error), (error))        \
    F(zip_int64_t, zip_error_to_data,                                          \
      (const zip_error_t *error, void *data, zip_uint64_t bytes),              \
      (error, data, bytes))                                                    \
    F(int, zip_fclose, (zip_file_t * file), (file))                            \
    F(zip_int64_t, zip_file_add,                                               \
      (zip_t * zip, const char *name, zip_source_t *source,                    \
       zip_flags_t flags),                                                     \
      (zip, name, source, flags))                                              \
    F(zip_error_t *, zip_file_get_error, (zip_file_t * file), (file))          \
    F(int, zip_file_set_dostime,                                               \
      (zip_t * zip, zip_uint64_t index, zip_uint16_t time, zip_uint16_t date,  \
       zip_flags_t flags),                                                     \
      (zip, index, time, date, flags))                                         \
    F(zip_file_t *, zip_fopen_index,                                           \
      (zip_t * zip, zip_uint64_t index, zip_flags_t flags),                    \
      (zip, index, flags))                                                     \
    F(zip_int64_t, zip_fread,                                                  \
      (zip_file_t * file, void *data, zip_uint64_t bytes),                     \
      (file, data, bytes))                                                     \
    F(zip_error_t *, zip_get_error, (zip_t * zip), (zip))                      \
    F(const char *, zip_get_name,                                              \
      (zip_t * zip, zip_uint64_t index, zip_flags_t flags),                    \
      (zip, index, flags))                                                     \
    F(zip_int64_t, zip_get_num_entries, (zip_t * zip, zip_flags_t flags),      \
      (zip, flags))                                                            \
    F(zip_t *, zip_open_from_source,                                           \
      (zip_source_t * source, int flags, zip_error_t *error),                  \
      (source, flags, error))                                                  \
    F(int, zip_set_file_compression,                                           \
      (zip_t * zip, zip_uint64_t index, zip_int32_t how, zip_uint32_t flags),  \
      (zip, index, how, flags))                                                \
    F(void, zip_source_free, (zip_source_t * source), (source))                \
    F(zip_source_t *, zip_source_function,                                     \
      (zip_t * zip, zip_source_callback function, void *arg),                  \
      (zip, function, arg))                                                    \
    F(zip_source_t *, zip_source_function_create,                              \
      (zip_source_callback function, void *arg, zip_error_t *error),           \
      (function, arg, error))                                                  \
    F(zip_int64_t, zip_source_seek_compute_offset,                             \
      (zip_uint64_t offset, zip_uint64_t size, void *data, zip_uint64_t bytes, \
       zip_error_t *error),                                                    \
      (offset, size, data, bytes, error))                                      \
    F(int, zip_stat_index,                                                     \
      (zip_t * zip, zip_uint64_t index, zip_flags_t flags, zip_stat_t * stat), \
      (zip, index, flags, stat))                                               \
    F(void, zip_stat_init, (zip_stat_t * stat), (stat))

#define FORWARD(result, name, parameters, arguments)                           \
    static __typeof__(name) *late_##name;                                      \
    result name parameters { return late_##name arguments; }

FUNCTIONS(FORWARD)

/* Takes a list that -1 ends, which cannot be handed on. */
zip_int64_t zip_source_make_command_bitmap(zip_source_cmd_t command, ...)
{
    zip_int64_t bits = ZIP_SOURCE_MAKE_COMMAND_BITMASK(command);
    va_list list;
    int next;

    va_start(list, command);
    while ((next = va_arg(list, int)) >= 0) {
        bits |= ZIP_SOURCE_MAKE_COMMAND_BITMASK(next);
    }
    va_end(list);
    return bits;
}

#define FIND(result, name, parameters, arguments)                              \
    if (found) {                                                               \
        late_##name = (__typeof__(name) *)dlsym(library, #name);               \
        found = late_##name != NULL;                                           \
    }

PyObject *tmsgpy_load_zip(PyObject *self, PyObject *unused)
{
    static bool found;
    const char *why;
    void *library;

    (void)self;
    (void)unused;
    if (found) {
        Py_RETURN_NONE;
    }
    library = dlopen(TMSGPY_ZIP, RTLD_NOW | RTLD_LOCAL); /* for good */
    found = library != NULL;
    FUNCTIONS(FIND)
    if (found) {
        Py_RETURN_NONE;
    }
    why = dlerror();
    return PyUnicode_DecodeFSDefault(why != NULL ? why : TMSGPY_ZIP);
}

#endif
