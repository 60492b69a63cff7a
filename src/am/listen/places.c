/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/listen/places.h"

#include <stdlib.h>
#include <string.h>

#include "am/endpoint/conn.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/scheme.h"
#include "am/net/sock.h"

#define NS_PER_MS UINT64_C(1000000)
#define SILENT_NS (TMSG_PLACE_SILENT_MS * NS_PER_MS)
#define SPOKEN_NS (TMSG_PLACE_SPOKEN_MS * NS_PER_MS)
#define FOUND_NS (TMSG_PLACE_FOUND_MS * NS_PER_MS)

typedef struct tmsg_origin {
    tmsg_node_t node; /* of listener->origins */
    tmsg_sock_origin_t name;
    uint32_t places;
} origin_t;

typedef enum {
    SILENT, /* no whole hello came */
    SPOKEN, /* the hello came, and nothing after it */
    FOUND,  /* without keys: the address came, and UCX is not connected */
    SAFE    /* does not make way */
} progress_t;

/* The best choice so far, and what it is compared by. */
typedef struct {
    tmsg_endpoint_t *endpoint;
    uint32_t places;
    uint64_t since_ns;
    uint64_t wait_ns; /* until the next has had its time */
} choice_t;

static origin_t *find_origin(tmsg_listener_t *listener,
                             const tmsg_sock_origin_t *name)
{
    origin_t *origin;

    for (tmsg_node_t *node = listener->origins.head; node != NULL;
         node = node->next) {
        origin = TMSG_CONTAINER_OF(node, origin_t, node);
        if (memcmp(&origin->name, name, sizeof(*name)) == 0) {
            return origin;
        }
    }
    origin = calloc(1, sizeof(*origin));
    if (origin != NULL) {
        origin->name = *name;
        tmsg_list_push(&listener->origins, &origin->node);
    }
    return origin;
}

void tmsg_places_take(tmsg_listener_t *listener, tmsg_endpoint_t *endpoint,
                      int fd)
{
    tmsg_sock_origin_t name = {.bytes = {0}};

    if (fd >= 0) {
        tmsg_sock_origin(fd, &name);
    }
    endpoint->place.origin = find_origin(listener, &name);
    if (endpoint->place.origin != NULL) {
        endpoint->place.origin->places++;
    }
    endpoint->place.taken = true;
    tmsg_list_push(&listener->places, &endpoint->place.node);
}

void tmsg_places_leave(tmsg_listener_t *listener, tmsg_endpoint_t *endpoint)
{
    origin_t *origin = endpoint->place.origin;

    if (!endpoint->place.taken) {
        return;
    }
    tmsg_list_remove(&listener->places, &endpoint->place.node);
    endpoint->place.taken = false;
    endpoint->place.origin = NULL;
    if (origin != NULL && --origin->places == 0) {
        tmsg_list_remove(&listener->origins, &origin->node);
        free(origin);
    }
}

/* By blob a peer says all that it has to say at once, and without keys it is no
 * stranger: who has the blob may come. */
static progress_t progress_of(const tmsg_endpoint_t *endpoint)
{
    const tmsg_link_t *link = &endpoint->link;
    bool keyless = !tmsg_admit_is_asked(endpoint);
    bool by_socket = tmsg_schemes[link->url.kind]->socket;

    if (endpoint->broken != TMSG_OK || tmsg_endpoint_is_down(endpoint) ||
        (keyless ? !by_socket : tmsg_admit_is_over(endpoint))) {
        return SAFE;
    }
    return keyless && link->address_done ? FOUND
           : link->hello_done            ? SPOKEN
                                         : SILENT;
}

/* Takes an endpoint for the choice if it has had its time and comes before the
 * one there. */
static void consider(choice_t *choice, tmsg_endpoint_t *endpoint,
                     uint64_t since_ns, uint64_t now_ns, uint64_t grace_ns)
{
    uint32_t places =
        endpoint->place.origin == NULL ? 0 : endpoint->place.origin->places;
    uint64_t age_ns = now_ns > since_ns ? now_ns - since_ns : 0;

    if (age_ns < grace_ns) {
        if (grace_ns - age_ns < choice->wait_ns) {
            choice->wait_ns = grace_ns - age_ns;
        }
    } else if (choice->endpoint == NULL || places > choice->places ||
               (places == choice->places && since_ns < choice->since_ns)) {
        choice->endpoint = endpoint;
        choice->places = places;
        choice->since_ns = since_ns;
    }
}

static tmsg_endpoint_t *endpoint_of(tmsg_node_t *node)
{
    return TMSG_CONTAINER_OF(node, tmsg_endpoint_t, place.node);
}

static uint32_t count_silent(const tmsg_listener_t *listener)
{
    uint32_t count = 0;

    for (tmsg_node_t *node = listener->places.head; node != NULL;
         node = node->next) {
        count += progress_of(endpoint_of(node)) == SILENT;
    }
    return count;
}

tmsg_endpoint_t *tmsg_places_choose(const tmsg_listener_t *listener,
                                    uint64_t now_ns, uint64_t *wait_ns_p)
{
    bool many = count_silent(listener) > listener->max_handshakes / 4;
    choice_t silent = {.wait_ns = UINT64_MAX}, spoken = silent, found = silent;

    for (tmsg_node_t *node = listener->places.head; node != NULL;
         node = node->next) {
        tmsg_endpoint_t *endpoint = endpoint_of(node);
        const tmsg_link_t *link = &endpoint->link;

        switch (progress_of(endpoint)) {
        case SILENT:
            consider(&silent, endpoint, link->since_ns, now_ns,
                     link->fd < 0 ? 0
                     : many       ? SILENT_NS
                                  : SPOKEN_NS);
            break;
        case SPOKEN:
            consider(&spoken, endpoint, link->hello_ns, now_ns, SPOKEN_NS);
            break;
        case FOUND:
            consider(&found, endpoint, link->address_ns, now_ns, FOUND_NS);
            break;
        default:
            break;
        }
    }
    *wait_ns_p =
        silent.wait_ns < spoken.wait_ns ? silent.wait_ns : spoken.wait_ns;
    if (found.wait_ns < *wait_ns_p) {
        *wait_ns_p = found.wait_ns;
    }
    return silent.endpoint != NULL   ? silent.endpoint
           : spoken.endpoint != NULL ? spoken.endpoint
                                     : found.endpoint;
}

bool tmsg_places_may_go(const tmsg_endpoint_t *endpoint)
{
    const tmsg_link_t *link = &endpoint->link;

    if (!endpoint->place.taken) {
        return false;
    }
    switch (progress_of(endpoint)) {
    case SILENT:
        return true;
    case SPOKEN:
        return tmsg_now_ns() - link->hello_ns >= SPOKEN_NS;
    case FOUND:
        return tmsg_now_ns() - link->address_ns >= FOUND_NS;
    default:
        return false;
    }
}

void tmsg_places_free(tmsg_listener_t *listener)
{
    tmsg_node_t *node;

    while ((node = tmsg_list_pop(&listener->origins)) != NULL) {
        free(TMSG_CONTAINER_OF(node, origin_t, node));
    }
}
