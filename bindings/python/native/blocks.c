/* SPDX-License-Identifier: BSD-3-Clause */
#include "blocks.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <tensormsg/shareable.h>

#include "arrays.h"
#include "errors.h"

/* A block. It lives as long as its first array, which all views hold. */
typedef struct {
    uint8_t *memory;
    size_t bytes;
    PyObject *first;  /* that array, without a reference */
    PyObject *given;  /* weak references to arrays that users were given */
    unsigned loans;   /* sends and offers of it that are not released */
    PyObject *frozen; /* arrays that were made read-only; NULL: none */
} block_t;

/* All blocks, by address. */
static block_t **blocks;
static size_t block_count, block_room;

/* What keeps values while they are lent, and the blocks that they lie in. */
typedef struct {
    PyObject *values;
    size_t count;
    block_t *blocks[]; /* each with a reference to its first array */
} loan_t;

/* Returns the index of the first block that ends behind the address. */
static size_t find_place(const uint8_t *address)
{
    size_t from = 0, to = block_count;

    while (from < to) {
        size_t middle = from + (to - from) / 2;

        if (address < blocks[middle]->memory + blocks[middle]->bytes) {
            to = middle;
        } else {
            from = middle + 1;
        }
    }
    return from;
}

static block_t *find_block(const uint8_t *address)
{
    size_t place = find_place(address);

    return place < block_count && address >= blocks[place]->memory
               ? blocks[place]
               : NULL;
}

static bool add_block(block_t *block)
{
    size_t place;

    if (block_count == block_room) {
        size_t room = block_room == 0 ? 16 : 2 * block_room;
        block_t **grown = realloc(blocks, room * sizeof(*grown));

        if (grown == NULL) {
            return false;
        }
        blocks = grown;
        block_room = room;
    }
    place = find_place(block->memory);
    memmove(&blocks[place + 1], &blocks[place],
            (block_count - place) * sizeof(*blocks));
    blocks[place] = block;
    block_count++;
    return true;
}

/* The destructor of the capsule that is the base of the first array. */
static void drop_block(PyObject *capsule)
{
    block_t *block = PyCapsule_GetPointer(capsule, "tensormsg.block");
    size_t place = find_place(block->memory);

    if (place < block_count && blocks[place] == block) {
        memmove(&blocks[place], &blocks[place + 1],
                (block_count - place - 1) * sizeof(*blocks));
        block_count--;
    }
    Py_XDECREF(block->given);
    (void)tmsg_shareable_free(block->memory);
    free(block);
}

/* Makes the first array of a block, which is listed then. */
static PyObject *list_block(block_t *block)
{
    PyObject *capsule = PyCapsule_New(block, "tensormsg.block", drop_block);

    if (capsule == NULL) {
        (void)tmsg_shareable_free(block->memory);
        free(block);
        return NULL;
    }
    block->first =
        tmsgpy_bytes_at(block->memory, (Py_ssize_t)block->bytes, capsule);
    if (block->first != NULL && !add_block(block)) {
        Py_CLEAR(block->first);
        PyErr_NoMemory();
    }
    Py_DECREF(capsule);
    return block->first;
}

PyObject *tmsgpy_block(PyObject *self, PyObject *number)
{
    block_t *block;
    tmsg_status_t status;
    PyThreadState *threads;
    void *memory = NULL;
    Py_ssize_t bytes = PyLong_AsSsize_t(number);

    (void)self;
    if (bytes == -1 && PyErr_Occurred()) {
        return NULL;
    }
    tmsgpy_drop_lent(); /* blocks may be among what is to be dropped */
    block = calloc(1, sizeof(*block));
    if (block == NULL) {
        return PyErr_NoMemory();
    }
    threads = PyEval_SaveThread(); /* all pages are touched */
    status = tmsg_shareable_alloc((uint64_t)bytes, NULL, &memory);
    PyEval_RestoreThread(threads);
    if (status != TMSG_OK) {
        free(block);
        return tmsgpy_raise(status, tmsg_error_message(), NULL);
    }
    *block = (block_t){.memory = memory, .bytes = (size_t)bytes};
    return list_block(block);
}

/* Returns the block in which a value lies, or NULL. */
static block_t *block_of(PyObject *value)
{
    int64_t strides[TMSGPY_NDIM_MAX];
    tmsg_tensor_t tensor;

    return block_count > 0 && tmsgpy_tensor_of(value, &tensor, strides) == 1
               ? find_block(tensor.data)
               : NULL;
}

PyObject *tmsgpy_block_given(PyObject *self, PyObject *array)
{
    block_t *block = block_of(array);
    PyObject *weak;
    int rc = -1;

    (void)self;
    if (block == NULL) {
        Py_RETURN_NONE;
    }
    if (block->given == NULL) {
        block->given = PyList_New(0);
    }
    weak = block->given == NULL ? NULL : PyWeakref_NewRef(array, NULL);
    if (weak != NULL) {
        rc = PyList_Append(block->given, weak);
        Py_DECREF(weak);
    }
    return rc != 0 ? NULL : (Py_INCREF(Py_None), Py_None);
}

PyObject *tmsgpy_is_lent(PyObject *self, PyObject *number)
{
    void *address = PyLong_AsVoidPtr(number);
    const block_t *block;

    (void)self;
    if (address == NULL && PyErr_Occurred()) {
        return NULL;
    }
    tmsgpy_drop_lent();
    block = find_block(address);
    return PyBool_FromLong((block != NULL && block->loans > 0) ||
                           tmsg_shareable_is_lent(address));
}

PyObject *tmsgpy_in_block(PyObject *self, PyObject *number)
{
    void *address = PyLong_AsVoidPtr(number);

    (void)self;
    if (address == NULL && PyErr_Occurred()) {
        return NULL;
    }
    return PyBool_FromLong(find_block(address) != NULL);
}

bool tmsgpy_in_blocks(PyObject *values)
{
    Py_ssize_t count = PyList_Size(values);
    bool all = count > 0;

    for (Py_ssize_t i = 0; all && i < count; i++) {
        all = block_of(PyList_GetItem(values, i)) != NULL;
    }
    return all;
}

/* Drops what was frozen only then: that may run other code. */
static void thaw(block_t *block)
{
    PyObject *frozen = block->frozen;

    block->frozen = NULL;
    for (Py_ssize_t i = 0; frozen != NULL && i < PyList_Size(frozen); i++) {
        tmsgpy_array_thaw(PyList_GetItem(frozen, i));
    }
    Py_XDECREF(frozen);
}

static void free_loan(loan_t *loan)
{
    for (size_t i = 0; i < loan->count; i++) {
        block_t *block = loan->blocks[i];
        PyObject *first = block->first;

        if (--block->loans == 0) {
            thaw(block);
        }
        Py_DECREF(first);
    }
    Py_DECREF(loan->values);
    free(loan);
}

static void drop_loan(PyObject *capsule)
{
    free_loan(PyCapsule_GetPointer(capsule, "tensormsg.loan"));
}

static bool freeze_array(block_t *block, PyObject *array)
{
    if (!tmsgpy_array_freeze(array)) {
        return true; /* it was read-only */
    }
    if (block->frozen == NULL) {
        block->frozen = PyList_New(0);
    }
    if (block->frozen == NULL || PyList_Append(block->frozen, array) != 0) {
        tmsgpy_array_thaw(array);
        return false;
    }
    return true;
}

static bool freeze_block(block_t *block)
{
    bool done = freeze_array(block, block->first);

    for (Py_ssize_t i = 0;
         done && block->given != NULL && i < PyList_Size(block->given); i++) {
        /* None, which is no array, where it is gone. */
        PyObject *array = PyWeakref_GetObject(PyList_GetItem(block->given, i));

        Py_INCREF(array);
        done = freeze_array(block, array);
        Py_DECREF(array);
    }
    return done;
}

static bool lend_value(loan_t *loan, block_t *block, PyObject *value)
{
    size_t i = 0;

    while (i < loan->count && loan->blocks[i] != block) {
        i++;
    }
    if (i == loan->count) {
        loan->blocks[loan->count++] = block;
        block->loans++;
        Py_INCREF(block->first);
        if (!freeze_block(block)) {
            return false;
        }
    }
    return freeze_array(block, value);
}

/* Returns how many of the values lie in blocks. */
static size_t count_lent(PyObject *values)
{
    size_t count = 0;

    for (Py_ssize_t i = 0; block_count > 0 && i < PyList_Size(values); i++) {
        count += block_of(PyList_GetItem(values, i)) != NULL;
    }
    return count;
}

/* Takes the reference to a list of values, `count` of which lie in blocks, and
 * returns what keeps them: until that is dropped these are read-only. */
static PyObject *freeze(PyObject *values, size_t count)
{
    PyObject *capsule;
    loan_t *loan;
    bool done;

    loan = calloc(1, sizeof(*loan) + count * sizeof(loan->blocks[0]));
    if (loan == NULL) {
        Py_DECREF(values);
        return PyErr_NoMemory();
    }
    loan->values = values;
    done = true;
    for (Py_ssize_t i = 0; done && i < PyList_Size(values); i++) {
        PyObject *value = PyList_GetItem(values, i);
        block_t *block = block_of(value);

        done = block == NULL || lend_value(loan, block, value);
    }
    capsule = done ? PyCapsule_New(loan, "tensormsg.loan", drop_loan) : NULL;
    if (capsule == NULL) {
        free_loan(loan);
    }
    return capsule;
}

tmsgpy_lent_t *tmsgpy_lend_frozen(PyObject *values, PyObject *told,
                                  tmsg_release_fn *on_release_p)
{
    size_t count = count_lent(values);

    *on_release_p = count > 0 ? tmsgpy_on_release_soon : tmsgpy_on_release;
    return tmsgpy_lend_told(count > 0 ? freeze(values, count) : values, told);
}
