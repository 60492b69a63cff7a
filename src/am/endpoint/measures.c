/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/endpoint/measures.h"

bool tmsg_others_silent(tmsg_others_t *others, uint64_t messages,
                        uint64_t now_ns, uint64_t silence_ns)
{
    if (messages != others->messages) {
        others->messages = messages;
        others->heard_ns = now_ns;
    }
    return others->heard_ns == 0 || now_ns - others->heard_ns >= silence_ns;
}
