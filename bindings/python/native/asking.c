/* SPDX-License-Identifier: BSD-3-Clause */
#include "asking.h"

#include "hub_impl.h"

static _Thread_local const tmsgpy_asked_t *asking;

void tmsgpy_asking_begin(tmsgpy_asked_t *asked, const tmsgpy_hub_t *hub)
{
    bool own_thread = PyGILState_GetThisThreadState() == NULL;

    *asked = (tmsgpy_asked_t){
        .outer = asking,
        .hub = hub,
        .own_thread = own_thread,
        .lock = PyGILState_Ensure(),
    };
    PyErr_Fetch(&asked->type, &asked->value, &asked->trace);
    asking = asked;
}

void tmsgpy_asking_end(tmsgpy_asked_t *asked)
{
    asking = asked->outer;
    PyErr_Restore(asked->type, asked->value, asked->trace);
    PyGILState_Release(asked->lock);
}

tmsgpy_asking_t tmsgpy_asking_in(const tmsgpy_hub_t *hub)
{
    for (const tmsgpy_asked_t *asked = asking; asked != NULL;
         asked = asked->outer) {
        if (asked->hub == hub) {
            return asked->own_thread ? TMSGPY_OWN_THREAD : TMSGPY_INSIDE;
        }
    }
    return TMSGPY_NOT;
}
