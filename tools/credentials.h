/* SPDX-License-Identifier: BSD-3-Clause */
/* credentials.h - what a command proves who it is by: the keys of --key, or the
 * certificates of the --tls options. A listening command reads them again after
 * SIGHUP. Functions fail as those of connection.h do. */
#ifndef TMSG_CREDENTIALS_H
#define TMSG_CREDENTIALS_H

#include "options.h"

/* Read what the options name; NULL: they name none. */
int read_keys(const connection_options_t *options, tmsg_keyring_t **keyring_p);
int read_tls(const tls_options_t *tls, tmsg_tls_t **tls_p);

/* Takes over what was read, or NULL, once it is in use: a command that listens
 * keeps it to its end, for SIGHUP; of others it is given back. */
void keep_keys(const connection_options_t *options, tmsg_keyring_t *keyring);
void keep_tls(const connection_options_t *options, tmsg_tls_t *tls);

/* Has SIGHUP mean that what is kept is to be read again. Where nothing is, and
 * in a sandbox, which keeps from the files, the signal ends the command as
 * ever. Returns false, with errno, if there is no descriptor to be had. */
bool credentials_hear(const connection_options_t *options);

/* Reads what is kept again, if SIGHUP has come, and says so on standard error.
 * For the loop of a listening command, which signals_hangup_fd() wakes. */
void credentials_look(const connection_options_t *options);

#endif
