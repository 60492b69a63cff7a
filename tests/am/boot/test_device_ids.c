/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* What a hello says of devices that have numbers. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "am/boot/device_ids.h"
#include "support/must.h"

#define NONE UINT32_MAX

/* The number of device 2:1, as a text has it. */
static uint32_t find(const char *text)
{
    uint32_t number = NONE;

    return tmsg_device_ids_find(text, (tmsg_device_t){2, 1}, &number) ? number
                                                                      : NONE;
}

Test(numbers, are_found)
{
    static const struct {
        const char *text;
        uint32_t number;
    } rows[] = {
        {"", NONE},
        {"7=2:1", 7},
        {"7=2:1,", 7},
        {"7=2:0,8=2:1", 8},
        {"7=2:0,8=2:1,9=2:1", 8},
        {"2147483647=2:1", 2147483647},
        {"0=10:1,1=2:11", NONE},
        /* What follows is none, from there on. */
        {"2147483648=2:1", NONE},
        {"99999999999999999999999=2:1", NONE},
        {"7", NONE},
        {"7=", NONE},
        {"7=2", NONE},
        {"7=2:", NONE},
        {"=2:1", NONE},
        {"7=:1", NONE},
        {"-7=2:1", NONE},
        {"7=2:1x", NONE},
        {"7:2=1", NONE},
        {"7=2:0;8=2:1", NONE},
        {"7=2:0,,8=2:1", NONE},
        {"7=2:0,x,8=2:1", NONE},
        {"7=2:0,8=2:1x", NONE},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        cr_expect(eq(u32, find(rows[i].text), rows[i].number), "%s",
                  rows[i].text);
    }
}

Test(numbers, of_no_table_are_none)
{
    char text[8] = "x";

    tmsg_device_ids_tell(NULL, text, sizeof(text));
    cr_expect_str_eq(text, "");
}

/* The host has none to tell. */
Test(numbers, of_a_table_without_devices_are_none)
{
    const tmsg_devices_params_t params = {
        .field_mask = TMSG_DEVICES_PARAM_TABLE | TMSG_DEVICES_PARAM_SYSFS |
                      TMSG_DEVICES_PARAM_FLAGS,
        .table = "{\"version\": 1, \"devices\": [{\"index\": 3, \"kind\": "
                 "\"host\"}]}",
        .sysfs = "/nowhere",
        .flags = TMSG_DEVICES_NO_DRIVERS};
    tmsg_devices_t *devices;
    char text[8] = "x";

    must(tmsg_devices_create(&params, &devices));
    tmsg_device_ids_tell(devices, text, sizeof(text));
    cr_expect_str_eq(text, "");
    tmsg_devices_destroy(devices);
}
