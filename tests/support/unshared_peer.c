/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/unshared_peer.h"

#include <unistd.h>

#include "support/seeded_maps.h"

enum { BYTES = 5000000, NOBODY = 65534 };

void stranger_change_user(void)
{
    must_eq(setgid(NOBODY), 0);
    must_eq(setuid(NOBODY), 0);
}

void stranger_send(side_t *side, tmsg_endpoint_t *endpoint)
{
    tmsg_request_t *closed;

    must_true(endpoint_uses(endpoint, "tcp/"));
    must_true(!endpoint_uses(endpoint, "posix/"));
    tmsg_request_destroy(send_map(endpoint, sample_bytes(1, BYTES), 0));
    must(tmsg_endpoint_close(endpoint, &closed));
    must(side_finish(side, closed));
}

void stranger_take(side_t *side)
{
    tmsg_message_t *message = side_take(side);

    sample_check_bytes(1, BYTES, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must_be(side_end_of(side, side->accepted), TMSG_ERR_CLOSED);
}
