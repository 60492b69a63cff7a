/* SPDX-License-Identifier: BSD-3-Clause */
#include "test_map_tools.h"

#include <tensormsg/device.h>

static void expect_error(const char *want)
{
    cr_expect_str_eq(tmsg_error_message(), want, "'%s', not '%s'",
                     tmsg_error_message(), want);
}

Test(device, is_written_and_read)
{
    static const char *const wrong[] = {
        "",        "cud",     "cuda:",           "cuda:x", "cuda:-1",
        "cuda: 1", "cuda:1x", "cuda:2147483648", ":0",     "device(99):3"};
    tmsg_device_t device = {77, 77};
    char name[TMSG_DEVICE_NAME_MAX];

    for (size_t i = 0; i < COUNT(wrong); i++) {
        cr_expect_eq(tmsg_device_parse(wrong[i], &device),
                     TMSG_ERR_INVALID_PARAM, "'%s'", wrong[i]);
    }
    expect_error("'device(99):3' is not a device: write cpu, cuda or cuda:1, "
                 "for example");
    cr_expect_eq(tmsg_device_parse(NULL, &device), TMSG_ERR_INVALID_PARAM);
    cr_expect(device.type == 77 && device.id == 77);
    cr_assert_eq(tmsg_device_parse("cuda_host", &device), TMSG_OK);
    cr_expect(device.type == TMSG_DEVICE_CUDA_HOST && device.id == 0);
    cr_assert_eq(tmsg_device_parse("rocm:2147483647", &device), TMSG_OK);
    cr_expect(device.type == TMSG_DEVICE_ROCM && device.id == INT32_MAX);
    device = (tmsg_device_t){INT32_MIN, INT32_MIN};
    tmsg_device_format(device, name, sizeof(name));
    cr_expect_str_eq(name, "device(-2147483648):-2147483648", "'%s'", name);
    cr_expect_str_eq(tmsg_device_format(device, name, 4), "dev", "'%s'", name);
}
