/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/config.h - which UCX keys are set, to what, and by whom. */
#ifndef TMSG_AM_UCX_CONFIG_H
#define TMSG_AM_UCX_CONFIG_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tensormsg/status.h>

#include "am/ucx/ucx_types.h"

#define TMSG_DEVICES_BYTES 64

/* The scope of connections: how far their traffic may go. It decides which
 * ports UCX opens. */
typedef struct {
    /* Network device; "": shared memory alone. */
    char device[TMSG_DEVICES_BYTES];
    bool named;    /* the application named the device, or several */
    int family;    /* AF_* of a ucx:// address; 0: not a ucx:// one */
    bool pipes;    /* no UCX: ucx_pipe.h */
    bool net_only; /* without shared memory, because UCX gets none */
    bool or_not;   /* rather an error than net_only */
    /* The device's address that UCX is to use (first.h); all zero: any. IPv4 is
     * IPv4-mapped. */
    struct in6_addr address;
} tmsg_ucx_scope_t;

typedef enum {
    TMSG_ORIGIN_DEFAULT = 0, /* our default */
    TMSG_ORIGIN_ENVIRONMENT = 1,
    TMSG_ORIGIN_CODE = 2,
    TMSG_ORIGIN_FILE = 3
} tmsg_ucx_origin_t;

typedef struct {
    char name[48];   /* with the UCX_ prefix */
    char value[208]; /* in force; a value of the environment may be cut */
    tmsg_ucx_origin_t origin;
    /* The reason for a value that the library set, the path for a file's, or
     * NULL. */
    const char *why;
} tmsg_ucx_key_t;

#define TMSG_UCX_KEYS_MAX 64

typedef struct {
    tmsg_ucx_key_t keys[TMSG_UCX_KEYS_MAX];
    size_t count;
    bool net_only; /* UCX_TLS is to be used without shared memory */
} tmsg_ucx_keys_t;

/* The settings of the application. Each text is "KEY=VALUE;KEY=VALUE", or
 * NULL. */
typedef struct {
    const char *code;
    const char *file;
    const char *path; /* of the file that `file` was read from */
} tmsg_ucx_given_t;

bool tmsg_ucx_scope_has_address(const tmsg_ucx_scope_t *scope);

/* Returns whether two scopes reach equally far. Whether shared memory is used
 * is not compared. */
bool tmsg_ucx_scope_equal(const tmsg_ucx_scope_t *one,
                          const tmsg_ucx_scope_t *other);

/* Checks that both texts are pairs, that none is too long, and that they are
 * not too many. Errors: INVALID_PARAM. */
tmsg_status_t tmsg_ucx_config_check(const tmsg_ucx_given_t *given);

/* Works out every key we care about for a scope: code first, then the user's
 * UCX_* variables, then the file, then our defaults. What `given` points to
 * must outlive *keys. In a net_only scope, shared memory is left out of
 * UCX_TLS, whoever set it, unless nothing would be left. Errors: INVALID_PARAM,
 * UNSUPPORTED (a value on which this UCX aborts, crashes or corrupts memory, or
 * that it takes from the environment alone). */
tmsg_status_t tmsg_ucx_config_resolve(const tmsg_ucx_given_t *given,
                                      const tmsg_ucx_scope_t *scope,
                                      tmsg_ucx_keys_t *keys);

/* Reads UCX's configuration and puts the keys into it. It is released with
 * ucp_config_release(). Errors: INTERNAL, NO_MEMORY, INVALID_PARAM (a key of
 * the application that this UCX does not know), UNSUPPORTED (UCX_TLS of UCX's
 * own file is too long to be read). */
tmsg_status_t tmsg_ucx_config_apply(const tmsg_ucx_keys_t *keys,
                                    tmsg_ucx_config_t **config_p);

/* Returns whether this process uses CUDA and its UCX knows CUDA. */
bool tmsg_ucx_config_serves_cuda(void);

/* Returns whether this UCX knows the key by another name, by which it is
 * set. */
bool tmsg_ucx_config_is_translated(const tmsg_ucx_key_t *key);

/* Returns whether UCX_TLS allows the comma-separated transports `users`. If
 * UCX_TLS lists transports, one of `users` in it suffices. If it excludes some
 * (^), none of `users` may be excluded. False for shared memory ("sm") if
 * keys->net_only; true for NULL. */
bool tmsg_ucx_config_takes(const tmsg_ucx_keys_t *keys, const char *users);

/* Returns a key in force, by its full name, or NULL. */
const tmsg_ucx_key_t *tmsg_ucx_config_key(const tmsg_ucx_keys_t *keys,
                                          const char *name);

/* Returns the value in force of a memory-size key ("60k") in bytes, as UCX
 * reads it. 0: the key is unset or no size. UINT64_MAX stands for "inf", "auto"
 * and values that exceed it. */
uint64_t tmsg_ucx_config_bytes(const tmsg_ucx_keys_t *keys, const char *name);

/* The version of the UCX that runs, which may differ from that of the
 * headers. */
typedef struct {
    unsigned major, minor, patch;
} tmsg_ucx_version_t;
tmsg_ucx_version_t tmsg_ucx_version(void);

const char *tmsg_ucx_origin_name(tmsg_ucx_origin_t origin);

/* tmsg_ucx_key_is_given() returns whether the application asked for a key,
 * which must then be one of UCX's. tmsg_ucx_key_source() returns by what it
 * asked, for the text of an error. */
bool tmsg_ucx_key_is_given(const tmsg_ucx_key_t *key);
const char *tmsg_ucx_key_source(const tmsg_ucx_key_t *key);

#endif
