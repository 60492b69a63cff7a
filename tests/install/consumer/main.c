/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>

#include <tensormsg/tensormsg.h>

int main(void) { return puts(tmsg_version()) < 0; }
