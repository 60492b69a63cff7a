/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory/device.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"

#define VENDOR_NVIDIA 0x10de
#define VENDOR_AMD 0x1002
#define VENDOR_HABANA 0x1da3
#define DIGITS "0123456789abcdefABCDEF"

/* Tells whether a PCI class is one of a device that computes: VGA and 3D
 * controllers, displays of another kind, processing accelerators. The function
 * compares base class and subclass. */
static bool class_computes(long class)
{
    long kind = class >> 8;

    return kind == 0x0300 || kind == 0x0302 || kind == 0x0380 || kind == 0x1200;
}

const char *tmsg_device_kind_name(int32_t kind)
{
    static const char *const names[] = {"host", "cuda", "rocm", "gaudi"};

    return kind >= TMSG_DEVICE_KIND_HOST && kind <= TMSG_DEVICE_KIND_GAUDI
               ? names[kind - TMSG_DEVICE_KIND_HOST]
               : "unknown";
}

static int32_t type_of(int32_t kind)
{
    static const int32_t types[] = {TMSG_DEVICE_CPU, TMSG_DEVICE_CUDA,
                                    TMSG_DEVICE_ROCM, TMSG_DEVICE_EXT_DEV};

    return types[kind - TMSG_DEVICE_KIND_HOST];
}

tmsg_device_info_t tmsg_device_unknown(int32_t kind)
{
    return (tmsg_device_info_t){.device = {type_of(kind), -1},
                                .kind = kind,
                                .index = -1,
                                .module_id = -1,
                                .numa_node = -1};
}

static bool has_digits(const char *text, size_t least, size_t most,
                       const char *end)
{
    size_t digits = strspn(text, DIGITS);

    return digits >= least && digits <= most && text + digits == end;
}

bool tmsg_device_bus_id(const char *text, char bus_id[TMSG_DEVICE_BUS_ID_BYTES])
{
    const char *dot = strrchr(text, '.');
    const char *colon = strrchr(text, ':');
    const char *first = strchr(text, ':');
    unsigned long domain, bus, device, function;

    if (dot == NULL || colon == NULL || dot < colon ||
        !has_digits(colon + 1, 2, 2, dot) ||
        !has_digits(dot + 1, 1, 1, text + strlen(text)) ||
        !has_digits(first == colon ? text : first + 1, 2, 2, colon) ||
        (first != colon && !has_digits(text, 4, 8, first))) {
        return false;
    }
    domain = first == colon ? 0 : strtoul(text, NULL, 16);
    bus = strtoul(first == colon ? text : first + 1, NULL, 16);
    device = strtoul(colon + 1, NULL, 16);
    function = strtoul(dot + 1, NULL, 16);
    if (device > 0x1f || function > 7) {
        return false;
    }
    snprintf(bus_id, TMSG_DEVICE_BUS_ID_BYTES, "%04x:%02x:%02x.%x",
             (unsigned)domain, (unsigned)bus & 0xff, (unsigned)device,
             (unsigned)function);
    return true;
}

/* Returns the first line of a small file, or "" if there is none. */
static const char *read_line(const char *folder, const char *name, char *line,
                             size_t bytes)
{
    char path[PATH_MAX];
    FILE *file = NULL;

    if ((size_t)snprintf(path, sizeof(path), "%s/%s", folder, name) <
        sizeof(path)) {
        file = fopen(path, "re");
    }
    if (file == NULL || fgets(line, (int)bytes, file) == NULL) {
        line[0] = '\0';
    }
    if (file != NULL) {
        fclose(file);
    }
    line[strcspn(line, "\n")] = '\0';
    return line;
}

/* Returns `otherwise` if the file holds no number. */
static long read_number(const char *folder, const char *name, long otherwise)
{
    char line[32], *end;
    long value = strtol(read_line(folder, name, line, sizeof(line)), &end, 0);

    return line[0] == '\0' || *end != '\0' ? otherwise : value;
}

static int32_t read_node(const char *folder)
{
    long node = read_number(folder, "numa_node", -1);

    return node < 0 || node > INT32_MAX ? -1 : (int32_t)node;
}

static tmsg_device_info_t *append_device(tmsg_devices_t *devices,
                                         const tmsg_device_info_t *info)
{
    if (devices->count == devices->room) {
        size_t room = devices->room == 0 ? 16 : 2 * devices->room;
        tmsg_device_info_t *infos =
            realloc(devices->infos, room * sizeof(*infos));

        if (infos == NULL) {
            tmsg_error_memory("the list of devices");
            return NULL;
        }
        devices->infos = infos;
        devices->room = room;
    }
    devices->infos[devices->count] = *info;
    return &devices->infos[devices->count++];
}

/* Searches for the NIC nearest to a device, among the NICs of both classes,
 * infiniband and net. */
typedef struct {
    const char *sysfs;
    const char *device; /* the device's folder, resolved */
    int32_t node;
    size_t best;
    char *nic;
} search_t;

/* Counts the path components that both paths begin with. */
static size_t shared_components(const char *a, const char *b)
{
    size_t components = 0;

    for (; *a == *b; a++, b++) {
        if (*a == '\0') {
            return components + 1;
        }
        components += *a == '/';
    }
    return components +
           ((*a == '\0' && *b == '/') || (*b == '\0' && *a == '/'));
}

/* Returns how near a NIC is to a device. A shared bridge or root complex counts
 * more the deeper it is in the path; the same NUMA node comes next. The result
 * is 0 if they share neither. */
static size_t nearness(const search_t *search, const char *path)
{
    char devices[PATH_MAX];
    size_t shared = shared_components(search->device, path);
    size_t least = 0;

    snprintf(devices, sizeof(devices), "%s/devices", search->sysfs);
    for (const char *at = devices; *at != '\0'; at++) {
        least += *at == '/';
    }
    shared = shared > least + 1 ? shared - least - 1 : 0;
    return 2 * shared + (search->node >= 0 && read_node(path) == search->node);
}

static int by_entry_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_shown(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* Calls see() for each entry of a folder of sysfs, in the order of their
 * names. */
static void each_sysfs_entry(const char *folder,
                             void (*see)(void *arg, const char *folder,
                                         const char *name),
                             void *arg)
{
    struct dirent **entries;
    int count = scandir(folder, &entries, is_shown, by_entry_name);

    for (int i = 0; i < count; i++) {
        see(arg, folder, entries[i]->d_name);
        free(entries[i]);
    }
    if (count >= 0) {
        free(entries);
    }
}

static void see_nic(void *arg, const char *folder, const char *name)
{
    search_t *search = arg;
    char link[PATH_MAX], path[PATH_MAX];
    size_t near;

    if ((size_t)snprintf(link, sizeof(link), "%s/%s/device", folder, name) >=
            sizeof(link) ||
        realpath(link, path) == NULL) {
        return; /* lo and other interfaces that are not hardware */
    }
    near = nearness(search, path);
    if (near > search->best) {
        search->best = near;
        snprintf(search->nic, TMSG_DEVICE_NIC_BYTES, "%.*s",
                 TMSG_DEVICE_NIC_BYTES - 1, name);
    }
}

/* The function looks at RDMA devices first, so that they win over their own
 * network interfaces. */
static void locate_device(const char *sysfs, tmsg_device_info_t *info)
{
    char link[PATH_MAX], path[PATH_MAX], folder[PATH_MAX];
    search_t search = {.sysfs = sysfs, .device = path, .nic = info->nic};

    if ((size_t)snprintf(link, sizeof(link), "%s/bus/pci/devices/%s", sysfs,
                         info->bus_id) >= sizeof(link) ||
        info->bus_id[0] == '\0' || realpath(link, path) == NULL) {
        return;
    }
    search.node = read_node(path);
    if (search.node >= 0) {
        info->numa_node = search.node;
    }
    snprintf(folder, sizeof(folder), "%.4000s/class/infiniband", sysfs);
    each_sysfs_entry(folder, see_nic, &search);
    snprintf(folder, sizeof(folder), "%.4000s/class/net", sysfs);
    each_sysfs_entry(folder, see_nic, &search);
}

typedef struct {
    tmsg_devices_t *devices;
    bool failed;
} scan_t;

static void see_device(void *arg, const char *folder, const char *name)
{
    scan_t *scan = arg;
    char path[PATH_MAX];
    tmsg_device_info_t info;
    int32_t kind;

    if ((size_t)snprintf(path, sizeof(path), "%s/%s", folder, name) >=
            sizeof(path) ||
        !class_computes(read_number(path, "class", 0))) {
        return;
    }
    switch (read_number(path, "vendor", 0)) {
    case VENDOR_NVIDIA:
        kind = TMSG_DEVICE_KIND_CUDA;
        break;
    case VENDOR_AMD:
        kind = TMSG_DEVICE_KIND_ROCM;
        break;
    case VENDOR_HABANA:
        kind = TMSG_DEVICE_KIND_GAUDI;
        break;
    default:
        return;
    }
    info = tmsg_device_unknown(kind);
    if (tmsg_device_bus_id(name, info.bus_id)) {
        scan->failed =
            scan->failed || append_device(scan->devices, &info) == NULL;
    }
}

/* Most machines have a single NUMA node. Only then is the host's node known. */
static bool add_host(tmsg_devices_t *devices, const char *sysfs)
{
    tmsg_device_info_t info = tmsg_device_unknown(TMSG_DEVICE_KIND_HOST);
    char online[32];

    info.device.id = 0;
    read_line(sysfs, "devices/virtual/dmi/id/product_name", info.title,
              sizeof(info.title));
    read_line(sysfs, "devices/virtual/dmi/id/product_uuid", info.uuid,
              sizeof(info.uuid));
    read_line(sysfs, "devices/system/node/online", online, sizeof(online));
    if (strcmp(online, "0") == 0) {
        info.numa_node = 0;
    }
    return append_device(devices, &info) != NULL;
}

static void take_known_text(char *to, const char *from, size_t bytes)
{
    if (from[0] != '\0') {
        memcpy(to, from, bytes);
    }
}

/* A later driver may lack facts that an earlier one has told; those facts
 * stay. */
static void merge_device(tmsg_device_info_t *info,
                         const tmsg_device_info_t *known)
{
    info->device = known->device;
    take_known_text(info->title, known->title, sizeof(info->title));
    take_known_text(info->uuid, known->uuid, sizeof(info->uuid));
    if (known->numa_node >= 0) {
        info->numa_node = known->numa_node;
    }
}

/* Adds what a driver knows to the device of sysfs, or of another driver, that
 * has no ordinal yet. Otherwise appends a device: the parts of a split device
 * share its bus id. */
static bool add_known(tmsg_devices_t *devices, const tmsg_device_info_t *known)
{
    for (size_t i = 0; i < devices->count; i++) {
        tmsg_device_info_t *info = &devices->infos[i];

        if (info->device.id < 0 && info->kind == known->kind &&
            strcmp(info->bus_id, known->bus_id) == 0 &&
            (info->uuid[0] == '\0' || known->uuid[0] == '\0' ||
             strcmp(info->uuid, known->uuid) == 0)) {
            merge_device(info, known);
            return true;
        }
    }
    return append_device(devices, known) != NULL;
}

static bool ask_source(tmsg_devices_t *devices,
                       const tmsg_device_source_t *source)
{
    tmsg_device_info_t info = tmsg_device_unknown(TMSG_DEVICE_KIND_CUDA);

    for (size_t i = 0; source->at(source->arg, i, &info); i++) {
        char bus_id[TMSG_DEVICE_BUS_ID_BYTES];

        if (tmsg_device_bus_id(info.bus_id, bus_id)) {
            memcpy(info.bus_id, bus_id, sizeof(bus_id));
        }
        if ((info.device.id >= 0 || info.bus_id[0] != '\0' ||
             info.uuid[0] != '\0') &&
            !add_known(devices, &info)) {
            return false;
        }
        info = tmsg_device_unknown(TMSG_DEVICE_KIND_CUDA);
    }
    return true;
}

static int by_place(const void *left, const void *right)
{
    const tmsg_device_info_t *a = left, *b = right;
    int host =
        (b->kind == TMSG_DEVICE_KIND_HOST) - (a->kind == TMSG_DEVICE_KIND_HOST);
    int order = host != 0 ? host : strcmp(a->bus_id, b->bus_id);

    return order != 0
               ? order
               : (a->device.id > b->device.id) - (a->device.id < b->device.id);
}

tmsg_status_t tmsg_devices_scan(tmsg_devices_t *devices, const char *sysfs,
                                const tmsg_device_source_t *sources,
                                size_t source_count)
{
    scan_t scan = {.devices = devices};
    char root[PATH_MAX], folder[PATH_MAX];

    if (realpath(sysfs, root) == NULL) {
        /* Without sysfs the list holds the host alone: this folder does not
         * exist. */
        snprintf(root, sizeof(root), "/nowhere");
    }
    scan.failed = !add_host(devices, root);
    snprintf(folder, sizeof(folder), "%.4000s/bus/pci/devices", root);
    each_sysfs_entry(folder, see_device, &scan);
    for (size_t i = 0; i < source_count && !scan.failed; i++) {
        scan.failed = !ask_source(devices, &sources[i]);
    }
    if (scan.failed) {
        free(devices->infos);
        *devices = (tmsg_devices_t){0};
        return TMSG_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < devices->count; i++) {
        locate_device(root, &devices->infos[i]);
    }
    qsort(devices->infos, devices->count, sizeof(*devices->infos), by_place);
    return TMSG_OK;
}
