/* SPDX-License-Identifier: BSD-3-Clause */
/* Exits 0 when the UCX that was loaded has the version of argv[1]. */
#include <stdio.h>
#include <string.h>

#include <ucp/api/ucp.h>

int main(int argc, char **argv)
{
    const char *wanted = argc > 1 ? argv[1] : "";
    const char *loaded = ucp_get_version_string();
    printf("loaded UCX %s, wanted %s\n", loaded, wanted);
    return strncmp(loaded, wanted, strlen(wanted)) == 0 ? 0 : 1;
}
