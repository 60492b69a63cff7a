/* SPDX-License-Identifier: BSD-3-Clause */
/* Which devices there are, in a sysfs of our own, and what a table calls
 * them. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory/device.h"
#include "memory/device_table.h"
#include "support/failing_alloc.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static char sysfs[] = "/tmp/tensormsg_sysfs_XXXXXX";

static const char *under(const char *path)
{
    static char all[4096];

    snprintf(all, sizeof(all), "%s/%s", sysfs, path);
    return all;
}

static void make_folders(const char *path)
{
    char all[4096];

    snprintf(all, sizeof(all), "%s", under(path));
    for (char *at = all + strlen(sysfs) + 1; *at != '\0'; at++) {
        if (*at == '/') {
            *at = '\0';
            mkdir(all, 0777);
            *at = '/';
        }
    }
}

static void put(const char *folder, const char *name, const char *text)
{
    char path[512];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    make_folders(path);
    file = fopen(under(path), "w");
    cr_assert_not_null(file, "%s", path);
    fputs(text, file);
    fclose(file);
}

static void put_link(const char *path, const char *to)
{
    char target[4096];

    make_folders(path);
    snprintf(target, sizeof(target), "%s/%s", sysfs, to);
    cr_assert_eq(symlink(target, under(path)), 0, "%s", path);
}

static void put_pci(const char *where, const char *vendor, const char *class,
                    const char *node)
{
    char folder[256], link[256];

    snprintf(folder, sizeof(folder), "devices/%s", where);
    put(folder, "vendor", vendor);
    put(folder, "class", class);
    put(folder, "numa_node", node);
    snprintf(link, sizeof(link), "bus/pci/devices/%s", strrchr(where, '/') + 1);
    put_link(link, folder);
}

static void put_nic(const char *class, const char *name, const char *where)
{
    char link[256], to[256];

    snprintf(link, sizeof(link), "class/%s/%s/device", class, name);
    snprintf(to, sizeof(to), "devices/%s", where);
    put_link(link, to);
}

#define SWITCH "pci0000:30/0000:30:01.0/0000:31:00.0"

/* A GPU that shares a switch with an RDMA card; one that shares a root with a
 * card of Ethernet; an accelerator that shares a node with that; one alone. */
static void make_machine(void)
{
    cr_assert_not_null(mkdtemp(sysfs));
    put("devices/system/node", "online", "0-1\n");
    put("devices/virtual/dmi/id", "product_name", "Rack of tests\n");
    put_pci(SWITCH "/0000:33:00.0", "0x10de\n", "0x030200\n", "0\n");
    put_pci(SWITCH "/0000:33:00.1", "0x10de\n", "0x040300\n", "0\n");
    put_pci(SWITCH "/0000:34:00.0", "0x15b3\n", "0x020000\n", "0\n");
    put_pci("pci0000:30/0000:30:02.0", "0x8086\n", "0x020000\n", "0\n");
    put_pci("pci0000:80/0000:80:01.0", "0x1002\n", "0x038000\n", "1\n");
    put_pci("pci0000:80/0000:80:02.0", "0x8086\n", "0x020000\n", "1\n");
    put_pci("pci0000:b0/0000:b3:00.0", "0x1da3\n", "0x120000\n", "1\n");
    put_pci("pci0000:b1/0000:b4:00.0", "0x1da3\n", "0x120000\n", "-1\n");
    put_pci("pci0000:00/0000:00:02.0", "0x1234\n", "0x030000\n", "0\n");
    put_nic("net", "eth0", "pci0000:30/0000:30:02.0");
    put_nic("net", "eth1", "pci0000:80/0000:80:02.0");
    put_nic("net", "eth2", SWITCH "/0000:34:00.0");
    put_nic("infiniband", "mlx5_0", SWITCH "/0000:34:00.0");
    put("class/net/lo", "address", "00:00:00:00:00:00\n");
}

static void remove_machine(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf %s", sysfs);
    cr_expect_eq(system(command), 0);
}

TestSuite(devices, .init = make_machine, .fini = remove_machine);

static tmsg_status_t create(const char *table, tmsg_devices_t **devices_p)
{
    const tmsg_devices_params_t params = {
        .field_mask = TMSG_DEVICES_PARAM_TABLE | TMSG_DEVICES_PARAM_SYSFS |
                      TMSG_DEVICES_PARAM_FLAGS,
        .table = table,
        .sysfs = sysfs,
        .flags = TMSG_DEVICES_NO_DRIVERS};

    return tmsg_devices_create(&params, devices_p);
}

static tmsg_devices_t *must_create(const char *table)
{
    tmsg_devices_t *devices = NULL;

    cr_assert_eq(create(table, &devices), TMSG_OK, "%s", tmsg_error_message());
    return devices;
}

/* One device in one line. */
static const char *line_of(const tmsg_device_info_t *info)
{
    static char line[512];
    char name[TMSG_DEVICE_NAME_MAX];

    snprintf(line, sizeof(line), "%d %s %s '%s' '%s' '%s' node %d nic '%s'",
             info->index, tmsg_device_kind_name(info->kind),
             tmsg_device_format(info->device, name, sizeof(name)), info->title,
             info->uuid, info->bus_id, info->numa_node, info->nic);
    return line;
}

static void expect_devices(const tmsg_devices_t *devices,
                           const char *const *lines, size_t count)
{
    cr_assert_eq(tmsg_devices_size(devices), count, "%zu",
                 tmsg_devices_size(devices));
    for (size_t i = 0; i < count; i++) {
        tmsg_device_info_t info;

        cr_assert_eq(tmsg_devices_at(devices, i, &info), TMSG_OK);
        cr_expect_str_eq(line_of(&info), lines[i], "%s", line_of(&info));
    }
}

Test(devices, are_found_with_their_place)
{
    static const char *const lines[] = {
        "-1 host cpu:0 'Rack of tests' '' '' node -1 nic ''",
        "-1 cuda cuda:-1 '' '' '0000:33:00.0' node 0 nic 'mlx5_0'",
        "-1 rocm rocm:-1 '' '' '0000:80:01.0' node 1 nic 'eth1'",
        "-1 gaudi ext_dev:-1 '' '' '0000:b3:00.0' node 1 nic 'eth1'",
        "-1 gaudi ext_dev:-1 '' '' '0000:b4:00.0' node -1 nic ''",
    };
    tmsg_devices_t *devices = must_create("");

    expect_devices(devices, lines, COUNT(lines));
    tmsg_devices_destroy(devices);
}

Test(devices, a_host_without_sysfs_has_itself)
{
    const tmsg_devices_params_t params = {
        .field_mask = TMSG_DEVICES_PARAM_SYSFS, .sysfs = "/nowhere at all"};
    static const char *const lines[] = {
        "-1 host cpu:0 '' '' '' node -1 nic ''"};
    tmsg_devices_t *devices;

    unsetenv("TENSORMSG_DEVICE_TABLE");
    cr_assert_eq(tmsg_devices_create(&params, &devices), TMSG_OK);
    expect_devices(devices, lines, 1);
    tmsg_devices_destroy(devices);
    cr_assert_eq(tmsg_devices_create(NULL, &devices), TMSG_OK, "%s",
                 tmsg_error_message());
    cr_expect(tmsg_devices_size(devices) >= 1);
    tmsg_devices_destroy(devices);
    tmsg_devices_destroy(NULL);
}

/* A driver that knows one of sysfs's, in halves, and one that sysfs hides. */
static bool driver_at(void *arg, size_t position, tmsg_device_info_t *info)
{
    static const char *const bus_ids[] = {
        "00000000:33:00.0", "00000000:33:00.0", "0000:FF:1F.7",
        "00010000:01:00.0", "FEDCBA98:01:00.0"};

    *(size_t *)arg += 1;
    if (position == COUNT(bus_ids)) {
        return false;
    }
    info->device.id = (int32_t)position;
    strcpy(info->bus_id, bus_ids[position]);
    snprintf(info->uuid, sizeof(info->uuid), "GPU-%zu", position);
    strcpy(info->title, "Imaginary");
    return true;
}

Test(devices, a_driver_tells_what_sysfs_cannot)
{
    static const char *const lines[] = {
        "-1 host cpu:0 'Rack of tests' '' '' node -1 nic ''",
        "7 cuda cuda:0 'Imaginary' 'GPU-0' '0000:33:00.0' node 0 nic 'mlx5_0'",
        "-1 cuda cuda:1 'Imaginary' 'GPU-1' '0000:33:00.0' node 0 nic 'mlx5_0'",
        "-1 rocm rocm:-1 '' '' '0000:80:01.0' node 1 nic 'eth1'",
        "-1 gaudi ext_dev:-1 '' '' '0000:b3:00.0' node 1 nic 'eth1'",
        "-1 gaudi ext_dev:-1 '' '' '0000:b4:00.0' node -1 nic ''",
        "-1 cuda cuda:2 'Imaginary' 'GPU-2' '0000:ff:1f.7' node -1 nic ''",
        "-1 cuda cuda:3 'Imaginary' 'GPU-3' '10000:01:00.0' node -1 nic ''",
        "8 cuda cuda:4 'Imaginary' 'GPU-4' 'fedcba98:01:00.0' node -1 nic ''",
    };
    size_t calls = 0;
    const tmsg_device_source_t source = {driver_at, &calls};
    tmsg_devices_t devices = {NULL, 0, 0};

    cr_assert_eq(tmsg_devices_scan(&devices, sysfs, &source, 1), TMSG_OK);
    cr_expect_eq(calls, 6);
    cr_expect_eq(tmsg_device_table_read("[]", &devices), TMSG_OK);
    cr_expect_eq(tmsg_device_table_read(
                     "{\"version\":1,\"devices\":[{\"index\":7,\"kind\":"
                     "\"cuda\",\"bus_id\":\"33:00.0\"}]}",
                     &devices),
                 TMSG_ERR_INVALID_PARAM);
    cr_expect_str_eq(
        tmsg_error_message(),
        "the device table that was given: entry 0: '33:00.0' matches 2 "
        "devices: choose one by its uuid",
        "%s", tmsg_error_message());
    cr_expect_eq(tmsg_device_table_read(
                     "{\"version\":1,\"devices\":[{\"index\":7,\"kind\":"
                     "\"cuda\",\"bus_id\":\"33:00.0\",\"uuid\":\"GPU-0\"},"
                     "{\"index\":8,\"kind\":\"cuda\",\"bus_id\":"
                     "\"FEDCBA98:01:00.0\"}]}",
                     &devices),
                 TMSG_OK, "%s", tmsg_error_message());
    expect_devices(&devices, lines, COUNT(lines));
    free(devices.infos);
}

#define TABLE                                                                  \
    "{\"version\": 1, \"devices\": [\n"                                        \
    "  {\"index\": 0, \"kind\": \"cuda\", \"bus_id\": \"0000:33:00.0\"},\n"    \
    "  {\"index\": 1, \"kind\": \"rocm\", \"bus_id\": \"80:01.0\"},\n"         \
    "  {\"index\": 9, \"kind\": \"gaudi\", \"bus_id\": \"0000:B4:00.0\"},\n"   \
    "  {\"index\": 4, \"kind\": \"host\"}\n]}\n"

static void expect_at(const tmsg_devices_t *devices, uint32_t index,
                      const char *bus_id, int32_t module_id)
{
    tmsg_device_info_t info;

    cr_assert_eq(tmsg_devices_find(devices, index, &info), TMSG_OK, "%s",
                 tmsg_error_message());
    cr_expect(strcmp(info.bus_id, bus_id) == 0 &&
                  info.index == (int32_t)index && info.module_id == module_id,
              "%u: %s, module %d", index, line_of(&info), info.module_id);
}

/* Given as it is, by a file's name, and by the variable. */
Test(devices, a_table_gives_them_numbers)
{
    const tmsg_devices_params_t only_sysfs = {
        .field_mask = TMSG_DEVICES_PARAM_SYSFS, .sysfs = sysfs};
    char file[4096];

    put(".", "table.json", TABLE);
    snprintf(file, sizeof(file), "%s", under("table.json"));
    for (int how = 0; how < 4; how++) {
        tmsg_devices_t *devices = NULL;
        tmsg_device_info_t info = {.index = 77};

        if (how >= 2) {
            setenv("TENSORMSG_DEVICE_TABLE", how == 2 ? TABLE : file, 1);
            cr_assert_eq(tmsg_devices_create(&only_sysfs, &devices), TMSG_OK,
                         "%s", tmsg_error_message());
        } else {
            devices = must_create(how == 0 ? " \n" TABLE : file);
        }
        expect_at(devices, 0, "0000:33:00.0", -1);
        expect_at(devices, 1, "0000:80:01.0", -1);
        expect_at(devices, 9, "0000:b4:00.0", -1);
        expect_at(devices, 4, "", -1);
        cr_expect_eq(tmsg_devices_find(devices, 2, &info), TMSG_ERR_NOT_FOUND);
        cr_expect_str_eq(tmsg_error_message(),
                         "the device table has no index 2");
        cr_expect_eq(tmsg_devices_find(devices, UINT32_MAX, &info),
                     TMSG_ERR_NOT_FOUND);
        cr_expect_eq(tmsg_devices_at(devices, 5, &info), TMSG_ERR_NOT_FOUND);
        cr_expect_eq(info.index, 77);
        tmsg_devices_destroy(devices);
    }
    tmsg_devices_destroy(must_create("")); /* code wins: no table */
}

Test(devices, reads_gaudis_own_table)
{
    tmsg_devices_t *devices = must_create(
        "[{\"index\":0,\"module_id\":2,\"bus_id\":\"0000:b4:00.0\"},\n"
        " {\"index\":1,\"module_id\":0,\"bus_id\":\"0000:b3:00.0\"}]");

    expect_at(devices, 0, "0000:b4:00.0", 2);
    expect_at(devices, 1, "0000:b3:00.0", 0);
    tmsg_devices_destroy(devices);
}

#define ENTRIES(text) "{\"version\":1,\"devices\":[" text "]}"
#define GPU "{\"index\":0,\"kind\":\"cuda\",\"bus_id\":\"0000:33:00.0\"}"

static const struct {
    const char *table, *error;
} refused[] = {
    {"{", "is not JSON: see line 1"},
    {ENTRIES("") "\n x", "is not JSON: see line 2"},
    {"[] []", "is not JSON: see line 1"},
    {"{\"version\":1,\n\"devices\\u0000\":[]}",
     "line 2: a string holds \\u0000"},
    {"{}", "'' has no \"version\": 1"},
    {"{\"version\":2,\"devices\":[]}", "'version' is not 1, the version that "
                                       "this library reads"},
    {"{\"version\":\"1\",\"devices\":[]}",
     "'version' is not an integer from 0 to 4294967295"},
    {"{\"version\":1}", "'' has no \"devices\""},
    {"{\"version\":1,\"devices\":{}}", "'devices' is not a list"},
    {"{\"version\":1,\"devices\":[],\"more\":1}",
     "'more' is not a field of the table"},
    {"{\"version\":1,\"devices\":[],\"version\":1}", "'version' occurs twice"},
    {ENTRIES("7"), "entry 0: '' is not an object"},
    {ENTRIES("{}"), "entry 0: it has no index"},
    {ENTRIES("{\"index\":1}"), "entry 0: it has no kind"},
    {ENTRIES("{\"index\":1,\"kind\":\"cuda\"}"), "entry 0: it has no bus_id"},
    {ENTRIES("{\"index\":1,\"kind\":\"tpu\"}"),
     "entry 0: kind 'tpu' is not one of host, cuda, rocm, gaudi"},
    {ENTRIES("{\"index\":1,\"kind\":3}"), "entry 0: 'kind' is not a string"},
    {ENTRIES("{\"index\":1,\"kind\":\"\"}"), "entry 0: 'kind' is empty"},
    {ENTRIES(GPU ",{\"index\":1,\"kind\":\"rocm\",\"uuid\":\"\"}"),
     "entry 1: 'uuid' is empty"},
    {ENTRIES("{\"index\":1,\"kind\":\"rocm\",\"bus_id\":\"0000:80:01.0\","
             "\"uuid\":\"\"}"),
     "entry 0: 'uuid' is empty"},
    {ENTRIES("{\"index\":1,\"kind\":\"cuda\",\"bus_id\":\"\"}"),
     "entry 0: 'bus_id' is empty"},
    {"[{\"index\":0,\"module_id\":1,\"bus_id\":\"\"}]",
     "entry 0: 'bus_id' is empty"},
    {ENTRIES("{\"index\":-1}"),
     "entry 0: 'index' is not an integer from 0 to 2147483647"},
    {ENTRIES("{\"index\":0.5}"),
     "entry 0: 'index' is not an integer from 0 to 2147483647"},
    {ENTRIES("{\"index\":1,\"index\":1}"), "entry 0: 'index' occurs twice"},
    {ENTRIES("{\"index\":1,\"module_id\":1}"),
     "entry 0: 'module_id' is not a field of an entry"},
    {ENTRIES("{\"index\":1,\"kind\":\"host\",\"bus_id\":\"0000:33:00.0\"}"),
     "entry 0: the host has neither bus_id nor uuid here"},
    {ENTRIES("{\"index\":1,\"kind\":\"cuda\",\"bus_id\":\"33:0.0\"}"),
     "entry 0: '33:0.0' is not a bus id like 0000:33:00.0"},
    {ENTRIES("{\"index\":1,\"kind\":\"cuda\",\"bus_id\":\"0000:44:00.0\"}"),
     "entry 0: '0000:44:00.0' is not a cuda device of this machine"},
    {ENTRIES("{\"index\":1,\"kind\":\"cuda\",\"bus_id\":\"0000:80:01.0\"}"),
     "entry 0: '0000:80:01.0' is a device of kind rocm, not cuda"},
    {ENTRIES("{\"index\":1,\"kind\":\"cuda\",\"uuid\":\"GPU-1\"}"),
     "entry 0: 'GPU-1' is not a cuda device of this machine"},
    {ENTRIES(GPU "," GPU), "entry 1: index 0 occurs twice"},
    {ENTRIES(GPU ",{\"index\":1,\"kind\":\"cuda\",\"bus_id\":\"33:00.0\"}"),
     "entry 1: index 0 is the same device"},
    {ENTRIES(GPU ",{\"index\":1,\"kind\":\"cuda\",\"bus_id\":"
                 "\"00000000:33:00.0\"}"),
     "entry 1: index 0 is the same device"},
    {ENTRIES("{\"index\":1,\"kind\":\"cuda\",\"bus_id\":\"0:33:00.0\"}"),
     "entry 0: '0:33:00.0' is not a bus id like 0000:33:00.0"},
    {ENTRIES("{\"index\":1,\"kind\":\"cuda\",\"bus_id\":"
             "\"000000000:33:00.0\"}"),
     "entry 0: '000000000:33:00.0' is not a bus id like 0000:33:00.0"},
    {"[{\"index\":0,\"kind\":\"gaudi\"}]",
     "entry 0: 'kind' is not a field of an entry"},
    {"[{\"index\":0,\"module_id\":1,\"bus_id\":\"b3:00.0\"},"
     "{\"index\":1,\"module_id\":1,\"bus_id\":\"b4:00.0\"}]",
     "entry 1: module_id 1 occurs twice"},
    {"[{\"index\":0,\"module_id\":1}]", "entry 0: it has no bus_id"},
};

Test(devices, a_table_that_is_wrong_is_refused_with_its_entry)
{
    for (size_t i = 0; i < COUNT(refused); i++) {
        tmsg_devices_t *devices = NULL;
        char error[512];

        snprintf(error, sizeof(error), "the device table that was given%s%s",
                 strncmp(refused[i].error, "is ", 3) == 0 ? " " : ": ",
                 refused[i].error);
        cr_expect_eq(create(refused[i].table, &devices), TMSG_ERR_INVALID_PARAM,
                     "%s", refused[i].table);
        cr_expect_str_eq(tmsg_error_message(), error, "'%s', not '%s'",
                         tmsg_error_message(), error);
        cr_expect_null(devices);
    }
}

Test(devices, a_file_that_is_not_there_is_named)
{
    const tmsg_devices_params_t unknown = {.field_mask = 1 << 5};
    tmsg_devices_t *devices = NULL;
    tmsg_device_info_t info;

    cr_expect_eq(create("/nowhere/table.json", &devices), TMSG_ERR_NOT_FOUND);
    cr_expect_str_eq(tmsg_error_message(), "the device table "
                                           "/nowhere/table.json: No such file "
                                           "or directory");
    cr_expect_eq(tmsg_devices_create(&unknown, &devices),
                 TMSG_ERR_INVALID_PARAM);
    cr_expect_eq(tmsg_devices_at(NULL, 0, &info), TMSG_ERR_INVALID_PARAM);
    cr_expect_eq(tmsg_devices_find(NULL, 0, &info), TMSG_ERR_INVALID_PARAM);
    cr_expect(tmsg_devices_size(NULL) == 0 && devices == NULL);
    cr_expect_str_eq(tmsg_device_kind_name(0), "unknown");
    cr_expect_str_eq(tmsg_device_kind_name(5), "unknown");
}

/* stdio's and scandir()'s own allocations may fail, too: then less is known. */
Test(devices, survives_every_failing_allocation)
{
    bool failed = true;

    for (unsigned long n = 1; failed; n++) {
        tmsg_devices_t *devices = NULL;
        tmsg_status_t status;

        failing_alloc_arm(n);
        status = create(TABLE, &devices);
        failed = failing_alloc_disarm();
        cr_expect_eq(status == TMSG_OK, devices != NULL);
        cr_expect(failed || status == TMSG_OK, "%s", tmsg_error_message());
        tmsg_devices_destroy(devices);
    }
}
