/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/path/shared.h"

void tmsg_shared_note(tmsg_endpoint_t *endpoint, const tmsg_segment_t *segment)
{
    endpoint->paths.shares = true;
    endpoint->paths.unsealed = endpoint->paths.unsealed || !segment->sealed;
}

const char *tmsg_shared_words(const tmsg_endpoint_t *endpoint)
{
    return !endpoint->paths.shares    ? "none"
           : endpoint->paths.unsealed ? tmsg_segment_unsealed
                                      : "sealed";
}
