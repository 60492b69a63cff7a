/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/connect/counted.h"

#include "am/connect/link.h"
#include "am/ucx/ucx_pipe.h"
#include "core/bytes.h"

#define COUNT_BYTES 8

static tmsg_pipe_moved_t moved(const tmsg_endpoint_t *endpoint)
{
    const tmsg_pipe_t *pipe = tmsg_ucx_pipe_of(endpoint->ep);

    return pipe == NULL ? (tmsg_pipe_moved_t){0} : tmsg_pipe_moved(pipe);
}

uint64_t tmsg_counted_ask(tmsg_endpoint_t *endpoint, uint64_t every_ns)
{
    tmsg_counted_t *counted = &endpoint->conn.counted;
    uint64_t written = moved(endpoint).written;

    if (endpoint->link.fd < 0 || written == counted->read) {
        return UINT64_MAX;
    }
    if (!counted->asked && tmsg_now_ns() - counted->told_ns >= every_ns &&
        tmsg_link_put(endpoint, TMSG_FRAME_COUNT, NULL, 0) == TMSG_OK) {
        counted->asked = true;
        counted->written = written;
    }
    return every_ns;
}

uint64_t tmsg_counted_stuck_ns(const tmsg_endpoint_t *endpoint,
                               unsigned answers)
{
    const tmsg_counted_t *counted = &endpoint->conn.counted;

    return counted->same < answers ? 0 : tmsg_now_ns() - counted->since_ns;
}

tmsg_status_t tmsg_counted_asked(tmsg_endpoint_t *endpoint, size_t bytes)
{
    uint8_t data[COUNT_BYTES];

    if (!endpoint->link.address_done || bytes > 0) {
        return tmsg_error_set(TMSG_ERR_MALFORMED, "an impossible COUNT");
    }
    tmsg_put_le(data, moved(endpoint).read, sizeof(data));
    return tmsg_link_put(endpoint, TMSG_FRAME_COUNTED, data, sizeof(data));
}

tmsg_status_t tmsg_counted_told(tmsg_endpoint_t *endpoint, const uint8_t *data,
                                size_t bytes)
{
    tmsg_counted_t *counted = &endpoint->conn.counted;
    uint64_t read = bytes < COUNT_BYTES ? 0 : tmsg_get_le(data, COUNT_BYTES);

    if (!counted->asked || bytes < COUNT_BYTES || read < counted->read ||
        read > moved(endpoint).written) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "an impossible answer to COUNT");
    }
    counted->asked = false;
    counted->told_ns = tmsg_now_ns();
    if (read > counted->read || read >= counted->written ||
        counted->since_ns == 0) {
        counted->since_ns = read >= counted->written ? 0 : counted->told_ns;
        counted->same = 0;
    }
    counted->same += counted->since_ns != 0;
    counted->read = read;
    return TMSG_OK;
}
