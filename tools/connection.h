/* SPDX-License-Identifier: BSD-3-Clause */
/* connection.h - opens and closes the connections that the options describe. A
 * function that fails prints the reason with complain() and returns an exit
 * code. Output parameters are NULL before the call; the caller destroys what
 * they hold after it, whatever the exit code is. */
#ifndef TMSG_CONNECTION_H
#define TMSG_CONNECTION_H

#include "options.h"

/* Creates a context with the keys that the options name, and else as `params`
 * say (NULL: with defaults). */
int open_context(const connection_options_t *options,
                 const tmsg_context_params_t *params,
                 tmsg_context_t **context_p);

/* Creates such a context, and a worker in it. */
int open_worker(const connection_options_t *options,
                const tmsg_worker_params_t *params, tmsg_context_t **context_p,
                tmsg_worker_t **worker_p);

/* Drives the worker until the operation has ended. Returns false if it goes on:
 * `timeout_ms` (-1: no limit) have passed, or a signal came that signals_open()
 * catches. */
bool wait_for(tmsg_request_t *request, int timeout_ms);

/* Connects to a URL, and waits until that has succeeded or failed. A signal
 * that signals_open() catches ends it without a complaint. */
int connect_to(const connection_options_t *options, const char *url,
               tmsg_worker_t *worker, tmsg_endpoint_t **endpoint_p);

/* Closes a connection and waits for its orderly end, which may fail. */
void close_in_order(tmsg_endpoint_t *endpoint, int timeout_ms);

/* Listens, enters the sandbox if one is wanted, and prints the URL as the first
 * line of standard output. */
int start_listening(const connection_options_t *options, tmsg_worker_t *worker,
                    tmsg_listener_params_t params,
                    tmsg_listener_t **listener_p);

/* Prints the thread's error, and returns the exit code for a status. */
int fail_by(tmsg_status_t status);

#endif
