/* SPDX-License-Identifier: BSD-3-Clause */
/* What tests of loans see inside of the library. */
#ifndef TMSG_TESTS_LOAN_TOOLS_H
#define TMSG_TESTS_LOAN_TOOLS_H

#include "am/endpoint/endpoint.h"
#include "am/path/loans_struct.h"
#include "core/dlpack.h"
#include "core/map.h"

/* For pair_await(): no loan of the endpoint is out. */
static inline bool has_none_out(void *arg)
{
    const tmsg_endpoint_t *endpoint = arg;

    return endpoint->paths.loans->out.count == 0;
}

static inline bool is_read_only(const tmsg_message_t *message, size_t index)
{
    return tmsg_map_entry_is_read_only(
        &tmsg_map_entries(tmsg_message_map(message))[index]);
}

#endif
