/* SPDX-License-Identifier: BSD-3-Clause */
/* A member of a .npz that inflates to more than 4 GiB. zip_fread() is replaced
 * by one that writes nothing, so that the memory is never touched.
 * soak/big_members loads real ones. */
#include "test_file_tools.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <limits.h>
#include <zip.h>

#include "core/bytes.h"

TestSuite(file_large, .init = make_scratch, .fini = drop_scratch);

__attribute__((visibility("default"))) zip_int64_t
zip_fread(zip_file_t *file, void *buffer, zip_uint64_t bytes);

static const char *npy;      /* the header of the member; NULL: use libzip */
static uint64_t npy_bytes;   /* of it */
static uint64_t left, asked; /* bytes of the member; largest request */

zip_int64_t zip_fread(zip_file_t *file, void *buffer, zip_uint64_t bytes)
{
    zip_int64_t (*real)(zip_file_t *, void *, zip_uint64_t);

    if (npy == NULL) {
        *(void **)(void *)&real = dlsym(RTLD_NEXT, "zip_fread");
        return real(file, buffer, bytes);
    }
    asked = bytes > asked ? bytes : asked;
    bytes = bytes < left ? bytes : left;
    if (npy_bytes > 0) {
        bytes = bytes < npy_bytes ? bytes : npy_bytes;
        memcpy(buffer, npy, bytes);
        npy += bytes;
        npy_bytes -= bytes;
    }
    left -= bytes;
    return (zip_int64_t)bytes;
}

/* Writes an archive with a deflated member "a.npy" of that size. Its data are
 * zeros, just enough of them for the deflate ratio. */
static void write_archive(const char *name, uint64_t size)
{
    enum { LOCAL = 30, CENTRAL = 46, NAME = 5, EXTRA = 20, END = 22 };
    const uint64_t packed = size / 1000, start = LOCAL + NAME + EXTRA;
    const size_t bytes = start + packed + CENTRAL + NAME + EXTRA + END;
    uint8_t *file = calloc(1, bytes), *at = file;

    for (int i = 0; i < 2; i++) {
        uint8_t *fields = at + (i == 0 ? 4 : 6);

        memcpy(at, i == 0 ? "PK\3\4" : "PK\1\2", 4);
        tmsg_put_le(fields, 45, 2);
        tmsg_put_le(fields + 4, 8, 2); /* deflated */
        memset(fields + 14, 0xff, 8);
        tmsg_put_le(fields + 22, NAME, 2);
        tmsg_put_le(fields + 24, EXTRA, 2);
        at += i == 0 ? LOCAL : CENTRAL;
        memcpy(at, "a.npy\1\0\x10\0", NAME + 4);
        tmsg_put_le(at + NAME + 4, size, 8);
        tmsg_put_le(at + NAME + 12, packed, 8);
        at += NAME + EXTRA + (i == 0 ? packed : 0);
    }
    memcpy(at, "PK\5\6", 4);
    tmsg_put_le(at + 8, 1, 2);
    tmsg_put_le(at + 10, 1, 2);
    tmsg_put_le(at + 12, CENTRAL + NAME + EXTRA, 4);
    tmsg_put_le(at + 16, start + packed, 4);
    write_scratch(name, file, bytes);
    free(file);
}

/* libzip before 1.10 miscounts requests of 2^32 bytes and more. */
Test(file_large, libzip_is_never_asked_for_4_GiB_at_once)
{
    static const int64_t extents[] = {UINT_MAX, 1LL << 32, (1LL << 32) + 5000};

#ifdef __SANITIZE_ADDRESS__
    cr_skip_test("AddressSanitizer touches what is allocated");
#endif
    for (size_t i = 0; i < sizeof(extents) / sizeof(extents[0]); i++) {
        const tmsg_limits_t limits = {.field_mask = TMSG_LIMIT_HELD_BYTES,
                                      .held_bytes = 1ULL << 40};
        const tmsg_file_load_params_t params = {
            .field_mask = TMSG_FILE_LOAD_PARAM_LIMITS, .limits = &limits};
        char header[128];
        tmsg_tensor_t tensor;
        tmsg_map_t *map = NULL;

        memcpy(header, "\x93NUMPY\1\0\x76\0", 10);
        memset(header + 10, ' ', sizeof(header) - 10);
        header[10 + sprintf(header + 10,
                            "{'descr': '|u1', 'fortran_order': False, "
                            "'shape': (%" PRId64 ",)}",
                            extents[i])] = ' ';
        npy = header;
        npy_bytes = sizeof(header);
        left = (uint64_t)extents[i] + npy_bytes;
        asked = 0;
        write_archive("x.npz", left);
        cr_assert_eq(tmsg_file_load(scratch_path("x.npz"), &params, &map),
                     TMSG_OK, "%s", tmsg_error_message());
        cr_expect_eq(left, 0);
        cr_expect_leq(asked, UINT_MAX, "%" PRIu64, asked);
        cr_assert_eq(tmsg_map_find(map, "a", &tensor), TMSG_OK);
        cr_expect_eq(tensor.shape[0], extents[i]);
        tmsg_map_destroy(map);
    }
    npy = NULL;
}
