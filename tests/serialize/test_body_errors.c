/* SPDX-License-Identifier: BSD-3-Clause */
/* What is wrong with a body, in which words, and what only a limit refuses. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "core/limits.h"
#include "core/map.h"
#include "serialize/header.h"
#include "support/golden_listing.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static tmsg_map_t *new_map(void)
{
    tmsg_map_t *map;

    cr_assert_eq(tmsg_map_create(&map), TMSG_OK);
    return map;
}

static tmsg_status_t decode(const void *body, size_t bytes, tmsg_map_t *map)
{
    tmsg_limits_t limits;

    limits = tmsg_limits_usual();
    return tmsg_body_decode(body, bytes, &limits, map, NULL);
}

Test(body, says_what_is_wrong_and_where)
{
    static const struct {
        const char *body;
        const char *message;
    } rows[] = {
        {"", "body: it ends early"},
        {"90", "body: it is not a map"},
        {"81 a1 31 90", "body: key is not an integer of 63 bits"},
        {"82 01 90 01 90", "body: key 1 occurs twice"},
        {"81 f0 00", "body: key -16 is not known here"},
        {"81 01 90 00 00", "body: 2 bytes after its end"},
        {"81 01 80", "body: tensors is not an array"},
        {"81 01 dd ff ff ff ff",
         "body: tensors counts more elements than there are bytes"},
        {"81 01 92 90 90 90", "body: 2 tensors in 3 bytes"},
        {"81 07 c1", "body: an unknown section holds a byte that msgpack never "
                     "uses"},
        {"81 01 91 80 00 00 00 00 00 00 00", "tensor 0 '': it is not an array"},
        {"81 01 91 94 a4 61 62 63 64 00 08 01",
         "tensor 0 '': it has 4 fields, not 5 or more"},
        {"81 01 91 95 c4 01 61 00 08 01 90",
         "tensor 0 '': name is not a string"},
        {"81 01 91 95 a1 61 c2 08 01 90",
         "tensor 0 'a': dtype code is not an integer of 63 bits"},
        {"81 01 91 95 a1 61 00 cf ff ff ff ff ff ff ff ff 01 90",
         "tensor 0 'a': dtype bits is not an integer of 63 bits"},
        {"81 01 91 95 a1 61 00 08 c0 90",
         "tensor 0 'a': dtype lanes is not an integer of 63 bits"},
        {"81 01 91 95 a1 61 00 08 01 80",
         "tensor 0 'a': shape is not an array"},
        {"81 01 91 95 a1 61 00 08 01 91 ff",
         "tensor 0 'a': shape[0] is negative (-1)"},
        {"81 01 91 95 a4 6d 61 73 6b 02 20 01 92 ce 80 00 00 00 ce 80 00 00 00",
         "tensor 0 'mask': shape product overflows 63 bits"},
        {"81 01 91 95 a1 61 63 08 01 90",
         "tensor 0 'a': unknown dtype (code 99, bits 8)"},
        {"81 01 91 95 a1 61 00 cd 01 08 01 90",
         "tensor 0 'a': unknown dtype (code 0, bits 264, lanes 1)"},
        {"81 01 91 95 a1 61 00 08 00 90", "tensor 0 'a': dtype has 0 lanes"},
        {"81 01 91 95 a0 00 08 01 90 90", "tensor 0 '': name is empty"},
        {"81 01 91 95 a3 61 00 62 00 08 01 90",
         "tensor 0 'a?b': name holds a NUL byte"},
        {"81 01 91 95 a2 61 ff 00 08 01 90",
         "tensor 0 'a\\xff': name is not UTF-8"},
        {"81 01 92 95 a1 61 00 08 01 90 95 a1 61 00 08 01 90",
         "tensor 1 'a': the name occurs twice"},
        {"81 01 91 96 a1 61 00 08 01 91 02 c6 00",
         "tensor 0 'a': options ends early"},
        {"81 01 91 96 a1 61 00 08 01 91 02 90",
         "tensor 0 'a': options is not a map"},
        {"81 01 91 96 a1 61 00 08 01 91 02 81 a0 00",
         "tensor 0 'a': option key is not an integer of 63 bits"},
        {"81 01 91 96 a1 61 00 08 01 91 02 81 fe 00",
         "tensor 0 'a': option key -2 is not known here"},
        {"81 01 91 96 a1 61 00 08 01 91 02 82 04 00 04 00",
         "tensor 0 'a': option key 4 occurs twice"},
        {"81 01 91 96 a1 61 00 08 01 91 02 81 01 92 01 02",
         "tensor 0 'a': 2 strides for 1 dimensions"},
        {"81 01 91 96 a1 61 00 08 01 91 02 81 01 91 02",
         "tensor 0 'a': strides leave gaps or overlap"},
        {"81 01 91 96 a1 61 00 08 01 92 02 02 81 01 92 00 02",
         "tensor 0 'a': strides leave gaps or overlap"},
        {"81 01 91 96 a1 61 00 04 01 91 02 81 01 91 00",
         "tensor 0 'a': strides are not supported for elements of 4 bits"},
        {"81 01 91 96 a1 61 00 08 01 91 02 82 01 91 00 03 02",
         "tensor 0 'a': byte length 2 does not match dtype and shape"},
        {"81 01 91 96 a1 61 00 08 01 91 02 81 01 01",
         "tensor 0 'a': strides is not an array"},
        {"81 01 91 96 a1 61 00 08 01 90 81 02 93 01 00 00",
         "tensor 0 'a': device is not a type and an id"},
        {"81 01 91 96 a1 61 00 08 01 90 81 02 92 00 00",
         "tensor 0 'a': device type 0 is out of range"},
        {"81 01 91 96 a1 61 00 08 01 90 81 02 92 02 ff",
         "tensor 0 'a': device id -1 is out of range"},
        {"81 01 91 96 a1 61 00 08 01 90 81 03 02",
         "tensor 0 'a': byte length 2 does not match dtype and shape"},
        {"81 01 91 96 a1 61 00 08 01 90 81 04 09",
         "tensor 0 'a': encoding 9 is not known here"},
        {"81 01 91 96 a1 61 00 08 01 91 02 81 04 01",
         "tensor 0 'a': a span without strides"},
        {"81 01 91 96 a1 61 00 04 01 91 02 82 01 91 01 04 01",
         "tensor 0 'a': a span of elements of 4 bits"},
        {"81 01 91 96 a1 61 00 08 01 91 02 82 01 92 01 01 04 01",
         "tensor 0 'a': 2 strides for 1 dimensions"},
        {"81 01 91 96 a1 61 00 08 01 91 02 83 01 91 05 03 02 04 01",
         "tensor 0 'a': byte length 2 does not match dtype and shape"},
        {"81 01 92 95 a1 61 00 08 01 90 96 a1 61 00 08 01 91 02 82 01 91 05 04 "
         "01",
         "tensor 1 'a': the name occurs twice"},
        {"81 01 91 96 a1 61 00 08 01 90 81 09 c1",
         "tensor 0 'a': an unknown option holds a byte that msgpack never "
         "uses"},
        {"81 01 91 97 a1 61 00 08 01 90 80 d9 05",
         "tensor 0 'a': an unknown field ends early"},
        {"81 02 90", "body: metadata is not a map"},
        {"81 02 81 01 01", "metadata 0 '': key is not a string"},
        {"81 02 81 a1 6b cb 00", "metadata 0 'k': value ends early"},
        {"81 02 81 a0 01", "metadata 0 '': key is empty"},
        {"81 02 81 a1 00 01", "metadata 0 '?': key holds a NUL byte"},
        {"81 02 81 a1 80 01", "metadata 0 '\\x80': key is not UTF-8"},
        {"81 02 82 a1 6b 01 a1 6b 01", "metadata 1 'k': key occurs twice"},
        {"81 02 81 a1 6b a1 80",
         "metadata 0: key 'k': the string is not UTF-8"},
        {"81 02 81 af 74 65 6e 73 6f 72 6d 73 67 2e 66 72 61 6d 65 a2 34 31",
         "metadata 0: key 'tensormsg.frame': takes i64, not string"},
        {"81 02 81 a1 6b c0",
         "metadata 0 'k': value is of a type not known here"},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_map_t *map = new_map();
        size_t bytes;
        uint8_t *body = golden_unhex(rows[i].body, &bytes);
        tmsg_status_t status = decode(body, bytes, map);

        cr_expect_lt(status, 0, "row %zu was taken", i);
        cr_expect_str_eq(tmsg_error_message(), rows[i].message);
        free(body);
        tmsg_map_destroy(map);
    }
}

Test(body, is_held_to_the_limits)
{
    static const struct {
        tmsg_limits_t limits; /* those not 0 */
        const char *body;
        const char *message; /* NULL: it is taken */
    } rows[] = {
        {{.tensors = 1}, "81 01 91 95 a1 61 00 08 01 90", NULL},
        {{.tensors = 1},
         "81 01 92 95 a1 61 00 08 01 90 95 a1 62 00 08 01 90",
         "body: 2 tensors exceed the limit of 1"},
        {{.ndim = 2}, "81 01 91 95 a1 61 00 08 01 92 01 01", NULL},
        {{.ndim = 2},
         "81 01 91 95 a1 61 00 08 01 93 01 01 01",
         "tensor 0 'a': ndim 3 exceeds 2"},
        {{.name_bytes = 2}, "81 01 91 95 a2 61 61 00 08 01 90", NULL},
        {{.name_bytes = 2},
         "81 01 91 95 a3 61 61 61 00 08 01 90",
         "tensor 0 'aaa': a name of 3 bytes exceeds the limit of 2"},
        {{.name_bytes = 2}, "81 02 81 a2 6b 6b 00", NULL},
        {{.name_bytes = 2},
         "81 02 81 a3 6b 6b 6b 00",
         "metadata 0 'kkk': key exceeds the limit of a name's bytes"},
        {{.metadata_bytes = 4}, "81 02 82 a1 6b a1 76 a1 6c c4 01 00", NULL},
        {{.metadata_bytes = 3},
         "81 02 82 a1 6b a1 76 a1 6c c4 01 00",
         "metadata 1 'l': value exceeds the limit of all metadata"},
        {{.metadata_keys = 2}, "81 02 82 a1 6b a1 76 a1 6c c4 01 00", NULL},
        {{.metadata_keys = 1},
         "81 02 82 a1 6b a1 76 a1 6c c4 01 00",
         "body: 2 metadata keys exceed the limit of 1"},
        {{.header_bytes = 3}, "81 01 90", NULL},
        {{.header_bytes = 2},
         "81 01 90",
         "body: 3 bytes exceed the limit of 2"},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_limits_t limits = rows[i].limits, defaults;
        tmsg_map_t *map = new_map();
        size_t bytes;
        uint8_t *body = golden_unhex(rows[i].body, &bytes);
        tmsg_status_t status;

        defaults = tmsg_limits_usual();
        limits.tensors = limits.tensors ? limits.tensors : defaults.tensors;
        limits.ndim = limits.ndim ? limits.ndim : defaults.ndim;
        limits.name_bytes =
            limits.name_bytes ? limits.name_bytes : defaults.name_bytes;
        limits.metadata_bytes = limits.metadata_bytes ? limits.metadata_bytes
                                                      : defaults.metadata_bytes;
        limits.header_bytes =
            limits.header_bytes ? limits.header_bytes : defaults.header_bytes;
        limits.metadata_keys = limits.metadata_keys ? limits.metadata_keys
                                                    : defaults.metadata_keys;
        status = tmsg_body_decode(body, bytes, &limits, map, NULL);
        cr_expect_eq(status,
                     rows[i].message ? TMSG_ERR_LIMIT_EXCEEDED : TMSG_OK,
                     "row %zu: %s", i, tmsg_status_name(status));
        if (rows[i].message != NULL) {
            cr_expect_str_eq(tmsg_error_message(), rows[i].message);
        }
        free(body);
        tmsg_map_destroy(map);
    }
}

Test(body, shows_a_long_foreign_name_safely)
{
    /* 60 letters, a two-byte and a three-byte character: the cut at 64 bytes
     * does not split one */
    uint8_t body[128] = {0x81, 1, 0x91, 0x95, 0xd9, 65};
    const char *end = "...': dtype has 0 lanes";
    tmsg_map_t *map = new_map();
    const char *message;

    memset(body + 6, 'n', 60);
    memcpy(body + 66, "\xc3\xa9\xe2\x82\xac\x00\x08\x00\x90", 9);
    cr_assert_eq(decode(body, 75, map), TMSG_ERR_UNSUPPORTED);
    message = tmsg_error_message();
    cr_expect_str_eq(message + strlen(message) - strlen(end), end);
    cr_expect(strstr(message, "n\xc3\xa9...") != NULL, "%s", message);
    tmsg_map_destroy(map);
}
