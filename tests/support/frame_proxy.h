/* SPDX-License-Identifier: BSD-3-Clause */
/* support/frame_proxy.h - somebody who stands between two peers' bootstrap
 * sockets, reads every frame, and changes what it likes. */
#ifndef TMSG_TESTS_FRAME_PROXY_H
#define TMSG_TESTS_FRAME_PROXY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MIDDLE_BYTES ((size_t)160 * 1024) /* of one way, at most */

typedef enum { MIDDLE_THERE, MIDDLE_BACK } middle_way_t;

/* A frame on its way, from the dialling side or back to it. The payload, with
 * its MAC, may be changed, and grow, up to 64 KiB. */
typedef struct {
    middle_way_t way;
    unsigned index; /* of the frames of that way, from 0 */
    uint8_t type;
    uint8_t *payload;
    size_t bytes;
    unsigned copies; /* that are passed on: 1 */
    uint32_t says;   /* its header, of its length; 0: the truth */
} middle_frame_t;

/* Called by the middle's own thread. */
typedef void (*middle_fn)(void *arg, middle_frame_t *frame);

typedef struct middle middle_t;

/* Passes on to tcp://127.0.0.1:port, one connection after the other; `edit` may
 * be NULL. */
middle_t *middle_open(const char *to, middle_fn edit, void *arg);
void middle_close(middle_t *middle);
const char *middle_url(const middle_t *middle);

/* What the latest connection said that way, as it came. Only once its ends are
 * known to have closed. */
size_t middle_heard(middle_t *middle, middle_way_t way, const uint8_t **data_p);

#endif
