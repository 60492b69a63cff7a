/* SPDX-License-Identifier: BSD-3-Clause */
#include <tensormsg/status.h>

const char *tmsg_status_name(tmsg_status_t status)
{
    switch (status) {
    case TMSG_OK:
        return "ok";
    case TMSG_IN_PROGRESS:
        return "in progress";
    case TMSG_CANCEL_PENDING:
        return "cancel pending";
    case TMSG_ERR_INVALID_PARAM:
        return "invalid parameter";
    case TMSG_ERR_NO_MEMORY:
        return "no memory";
    case TMSG_ERR_TIMED_OUT:
        return "timed out";
    case TMSG_ERR_CANCELED:
        return "canceled";
    case TMSG_ERR_PEER_LOST:
        return "peer lost";
    case TMSG_ERR_REFUSED:
        return "refused";
    case TMSG_ERR_LIMIT_EXCEEDED:
        return "limit exceeded";
    case TMSG_ERR_MALFORMED:
        return "malformed";
    case TMSG_ERR_UNSUPPORTED:
        return "unsupported";
    case TMSG_ERR_INSECURE:
        return "insecure";
    case TMSG_ERR_BUSY:
        return "busy";
    case TMSG_ERR_NOT_FOUND:
        return "not found";
    case TMSG_ERR_ALREADY_EXISTS:
        return "already exists";
    case TMSG_ERR_UNREACHABLE:
        return "unreachable";
    case TMSG_ERR_INCOMPATIBLE:
        return "incompatible";
    case TMSG_ERR_WOULD_BLOCK:
        return "would block";
    case TMSG_ERR_CLOSED:
        return "closed";
    case TMSG_ERR_IO:
        return "input/output error";
    case TMSG_ERR_INTERNAL:
        return "internal error";
    case TMSG_ERR_CORRUPT:
        return "checksum mismatch";
    case TMSG_ERR_DROPPED:
        return "dropped";
    case TMSG_ERR_RESOURCE_EXHAUSTED:
        return "resource exhausted";
    case TMSG_ERR_UNAVAILABLE:
        return "unavailable";
    case TMSG_ERR_APPLICATION:
        return "application error";
    }
    return "unknown status";
}
