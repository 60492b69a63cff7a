/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/ucx_config.h - which UCX keys are set, to what, and by whom. */
#ifndef TMSG_AM_UCX_UCX_CONFIG_H
#define TMSG_AM_UCX_UCX_CONFIG_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tensormsg/status.h>

#include "am/ucx/ucx_types.h"

#define TMSG_DEVICES_BYTES 64

/* How far traffic may go: it decides which doors UCX opens. */
typedef struct {
    char device[TMSG_DEVICES_BYTES]; /* network device; "" is shared memory
                                        alone */
    bool named;    /* by the application, which may name several */
    int family;    /* AF_* of a ucx:// address; 0: ours find their own */
    bool net_only; /* without shared memory, which UCX does not get */
    bool or_not;   /* not at all rather than so */
    struct in6_addr address; /* of the device, that UCX is to use (first.h); all
                                zero: any. IPv4 is IPv4-mapped */
} tmsg_ucx_scope_t;

typedef enum {
    TMSG_ORIGIN_DEFAULT = 0, /* ours */
    TMSG_ORIGIN_ENVIRONMENT = 1,
    TMSG_ORIGIN_CODE = 2,
    TMSG_ORIGIN_FILE = 3
} tmsg_ucx_origin_t;

typedef struct {
    char name[48];   /* with the UCX_ prefix */
    char value[208]; /* in force; one of the environment's may be cut */
    tmsg_ucx_origin_t origin;
    const char *why; /* for a default of ours; of a file's, its path; or NULL */
} tmsg_ucx_key_t;

#define TMSG_UCX_KEYS_MAX 64

typedef struct {
    tmsg_ucx_key_t keys[TMSG_UCX_KEYS_MAX];
    size_t count;
    bool net_only; /* UCX_TLS is to be taken without shared memory */
} tmsg_ucx_keys_t;

/* What the application says, "KEY=VALUE;KEY=VALUE" each. All zero bits: no
 * word. */
typedef struct {
    const char *code;
    const char *file;
    const char *path; /* of the file */
} tmsg_ucx_given_t;

bool tmsg_ucx_scope_has_address(const tmsg_ucx_scope_t *scope);

/* Whether traffic goes as far, with shared memory or without. */
bool tmsg_ucx_scope_equal(const tmsg_ucx_scope_t *one,
                          const tmsg_ucx_scope_t *other);

/* Whether these are pairs, none too long, nor too many. Errors: INVALID_PARAM.
 */
tmsg_status_t tmsg_ucx_config_check(const tmsg_ucx_given_t *given);

/* Works out every key we care about for a scope: code, then the user's UCX_*
 * variables, then the file, then our defaults. What `given` points to is to
 * outlive *keys. In a scope without shared memory UCX_TLS counts without that,
 * whoever set it, unless nothing would be left. */
tmsg_status_t tmsg_ucx_config_resolve(const tmsg_ucx_given_t *given,
                                      const tmsg_ucx_scope_t *scope,
                                      tmsg_ucx_keys_t *keys);

/* Reads UCX's configuration and puts the keys into it. Released with
 * ucp_config_release(). Errors: INTERNAL, NO_MEMORY, INVALID_PARAM (a key of
 * the application's that this UCX does not know). */
tmsg_status_t tmsg_ucx_config_apply(const tmsg_ucx_keys_t *keys,
                                    tmsg_ucx_config_t **config_p);

/* Whether this UCX takes the key by another name, which it is given by. */
bool tmsg_ucx_config_is_translated(const tmsg_ucx_key_t *key);

/* Whether UCX_TLS lets any of these transports take part, or them all where it
 * excepts some; true for NULL. */
bool tmsg_ucx_config_takes(const tmsg_ucx_keys_t *keys, const char *users);

/* A key in force, by its full name, or NULL. */
const tmsg_ucx_key_t *tmsg_ucx_config_key(const tmsg_ucx_keys_t *keys,
                                          const char *name);

/* The value in force of a memory-size key ("60k"), in bytes, as UCX reads it; 0
 * if it is unset or no size, UINT64_MAX for "inf", "auto" and what exceeds it.
 */
uint64_t tmsg_ucx_config_bytes(const tmsg_ucx_keys_t *keys, const char *name);

/* The version of the UCX that runs, which need not be the one of the headers.
 */
typedef struct {
    unsigned major, minor, patch;
} tmsg_ucx_version_t;
tmsg_ucx_version_t tmsg_ucx_version(void);

const char *tmsg_ucx_origin_name(tmsg_ucx_origin_t origin);

/* Whether the application asked for a key, so that it must be one of UCX's; and
 * by what, for the words of an error. */
bool tmsg_ucx_key_is_given(const tmsg_ucx_key_t *key);
const char *tmsg_ucx_key_source(const tmsg_ucx_key_t *key);

#endif
