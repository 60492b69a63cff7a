/* SPDX-License-Identifier: BSD-3-Clause */
/* support/own_ports.h - the TCP ports at which this process listens. */
#ifndef TMSG_TESTS_OWN_PORTS_H
#define TMSG_TESTS_OWN_PORTS_H

unsigned count_ports(void);

#endif
