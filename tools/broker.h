/* SPDX-License-Identifier: BSD-3-Clause */
/* broker.h - a process beside a sandboxed one, which opens for it the memory
 * that UCX of its peers shares. */
#ifndef TMSG_BROKER_H
#define TMSG_BROKER_H

#include <stdbool.h>

/* Starts the broker, while the process has one thread. When this process ends,
 * however it does, the broker removes the empty folder `folder` (NULL: none)
 * and the socket file `socket_path`, and ends. Returns false, with errno, if
 * there is none. */
bool broker_start(const char *folder, const char *socket_path);

/* Called when the process listens. From here on open(), stat() and readlink()
 * of this process ask the broker for /proc/PID/fd/NUMBER and /proc/PID/stat of
 * other processes. */
void broker_use(void);

#endif
