/* SPDX-License-Identifier: BSD-3-Clause */
/* Each test is a process of its own, in which Criterion starts libgit2, whose
 * diffs it prints. That starts libraries for repositories behind https and ssh:
 * every certificate of the machine is read, which takes as long as most tests
 * and, under AddressSanitizer, longer. These stand before theirs. */
#define EXPORTED __attribute__((visibility("default")))

EXPORTED int mbedtls_x509_crt_parse_file(void *chain, const char *path);
EXPORTED int mbedtls_x509_crt_parse_path(void *chain, const char *path);
EXPORTED int libssh2_init(int flags);
EXPORTED void libssh2_exit(void);

int mbedtls_x509_crt_parse_file(void *chain, const char *path)
{
    (void)chain;
    (void)path;
    return 0;
}

int mbedtls_x509_crt_parse_path(void *chain, const char *path)
{
    (void)chain;
    (void)path;
    return 0;
}

int libssh2_init(int flags)
{
    (void)flags;
    return 0;
}

void libssh2_exit(void) {}
