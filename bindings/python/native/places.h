/* SPDX-License-Identifier: BSD-3-Clause */
/* places.h - memory that receives write to. No two receives have the same byte
 * at once: the second could end well with bytes of the first. The interpreter's
 * lock is held in all of it, but for tmsgpy_posted_release(). */
#ifndef TENSORMSG_PYTHON_PLACES_H
#define TENSORMSG_PYTHON_PLACES_H

#include <Python.h>
#include <stdbool.h>

#include <tensormsg/call.h>

/* Buffers of one receive: of a call, a fetch or recv_into(). */
typedef struct tmsgpy_posted tmsgpy_posted_t;

/* Makes a record of so many buffers; NULL with an exception. The caller drops
 * its reference. */
tmsgpy_posted_t *tmsgpy_posted_make(size_t count);
void tmsgpy_posted_hold(tmsgpy_posted_t *posted);
void tmsgpy_posted_drop(tmsgpy_posted_t *posted);

/* Keeps `arrays` until release() was called once for this and for each add().
 * The library calls it, in whatever thread, when it writes no more to a buffer
 * of a map. False with an exception. */
bool tmsgpy_posted_keep(tmsgpy_posted_t *posted, PyObject *arrays);
void tmsgpy_posted_add(tmsgpy_posted_t *posted);
void tmsgpy_posted_release(void *posted);

/* Gives the record its map of the buffers, or takes the map from it. */
void tmsgpy_posted_set(tmsgpy_posted_t *posted, tmsg_map_t *map);
tmsg_map_t *tmsgpy_posted_map(const tmsgpy_posted_t *posted);
tmsg_map_t *tmsgpy_posted_unset(tmsgpy_posted_t *posted);

/* Why a buffer is not free. */
enum {
    TMSGPY_WRITTEN, /* a receive that failed may write to it still; it passes */
    TMSGPY_GOES_ON, /* another receive into it goes on */
    TMSGPY_LIES     /* a message lies there that nobody has taken */
};

/* Claims the buffers for a receive on that hub. Until forgo() they are not
 * cleared by others. False: *result_p is NULL with an exception, or (name of
 * the buffer, why it is not free, number of the hub that has it). */
bool tmsgpy_posted_claim(tmsgpy_posted_t *posted, void *hub,
                         PyObject **result_p);
void tmsgpy_posted_forgo(tmsgpy_posted_t *posted);

/* The call that was made with them, until it is destroyed (NULL). */
void tmsgpy_posted_call(tmsgpy_posted_t *posted, const tmsg_call_t *call);

/* recv_into() waits with them; it has left, and a message may lie there or be
 * on its way. */
void tmsgpy_posted_waits(tmsgpy_posted_t *posted);
void tmsgpy_posted_left(tmsgpy_posted_t *posted, bool lies);

/* What was received there is taken: others may have them. */
void tmsgpy_posted_taken(tmsgpy_posted_t *posted);

#endif
