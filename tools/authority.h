/* SPDX-License-Identifier: BSD-3-Clause */
/* authority.h - signs certificates, for tests and small sites. */
#ifndef TMSG_AUTHORITY_H
#define TMSG_AUTHORITY_H

#include <stddef.h>

#define HOSTS_MOST 64

/* Creates a certificate and its private key in a folder, as `principal`.pem and
 * `principal`.key, for these hosts: DNS names and IP addresses (none: this
 * machine's own). The authority of the folder signs it, ca.pem and ca.key,
 * which is created where it is missing, as is the folder. Prints what it has
 * created. Returns an exit code. */
int make_certificate(const char *folder, const char *principal,
                     const char *const *hosts, size_t count);

#endif
