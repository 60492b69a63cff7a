/* SPDX-License-Identifier: BSD-3-Clause */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "memory/cuda_driver.h"
#include "memory/domain.h"
#include "memory/symbols.h"

static tmsg_symbol_fn raw_pci_v3, raw_pci_v2;

typedef int (*raw_pci_fn)(void *device, void *info);

/* Version 3 writes nvmlPciInfo_t like this: with a short bus id at the
 * beginning and a longer one at the end. */
typedef struct {
    char short_id[16];
    unsigned domain, bus, device, ids, subsystem;
    char id[32];
} pci_v3_t;

/* Version 2 writes nvmlPciInfo_t like this. The last four numbers are
 * reserved. */
typedef struct {
    char id[16];
    unsigned domain, bus, device, ids, subsystem, reserved[4];
} pci_v2_t;

static int pci_v3(void *device, tmsg_nvml_pci_t *pci)
{
    pci_v3_t info;
    int result;

    memset(&info, 0, sizeof(info));
    result = ((raw_pci_fn)raw_pci_v3)(device, &info);
    if (result == 0) {
        *pci = (tmsg_nvml_pci_t){info.domain, info.bus, info.device};
    }
    return result;
}

static int pci_v2(void *device, tmsg_nvml_pci_t *pci)
{
    pci_v2_t info;
    int result;

    memset(&info, 0, sizeof(info));
    result = ((raw_pci_fn)raw_pci_v2)(device, &info);
    if (result == 0) {
        *pci = (tmsg_nvml_pci_t){info.domain, info.bus, info.device};
    }
    return result;
}

#define SLOT(name) #name, offsetof(tmsg_nvml_functions_t, name)

static const tmsg_symbol_t symbols[] = {
    {SLOT(nvmlInit), true, {{"nvmlInit_v2", 2, NULL, NULL}}},
    {SLOT(nvmlDeviceGetCount),
     true,
     {{"nvmlDeviceGetCount_v2", 2, NULL, NULL}}},
    {SLOT(nvmlDeviceGetHandleByIndex),
     true,
     {{"nvmlDeviceGetHandleByIndex_v2", 2, NULL, NULL}}},
    {SLOT(nvmlDeviceGetUUID), true, {{"nvmlDeviceGetUUID", 1, NULL, NULL}}},
    {SLOT(nvmlDeviceGetName), true, {{"nvmlDeviceGetName", 1, NULL, NULL}}},
    {"nvmlDeviceGetPciInfo",
     offsetof(tmsg_nvml_functions_t, pci),
     true,
     {{"nvmlDeviceGetPciInfo_v3", 3, (tmsg_symbol_fn)pci_v3, &raw_pci_v3},
      {"nvmlDeviceGetPciInfo_v2", 2, (tmsg_symbol_fn)pci_v2, &raw_pci_v2}}},
    {SLOT(nvmlDeviceGetNumaNodeId),
     false,
     {{"nvmlDeviceGetNumaNodeId", 1, NULL, NULL}}},
    {SLOT(nvmlSystemGetDriverVersion),
     true,
     {{"nvmlSystemGetDriverVersion", 1, NULL, NULL}}},
    {SLOT(nvmlErrorString), true, {{"nvmlErrorString", 1, NULL, NULL}}},
};

void tmsg_nvml_open(tmsg_nvml_t *nvml, const char *path)
{
    const tmsg_symbol_t *missing;
    void *library;
    int result;

    memset(nvml, 0, sizeof(*nvml));
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *why = dlerror();

        snprintf(nvml->why, sizeof(nvml->why), "no NVML: %s",
                 why == NULL ? path : why);
        return;
    }
    missing = tmsg_symbols_fill(symbols, sizeof(symbols) / sizeof(symbols[0]),
                                tmsg_symbols_dlsym, library, &nvml->fn);
    if (missing != NULL) {
        snprintf(nvml->why, sizeof(nvml->why), "NVML is too old: it has no %s",
                 missing->name);
        return;
    }
    result = nvml->fn.nvmlInit();
    if (result != 0) {
        snprintf(nvml->why, sizeof(nvml->why),
                 "NVML does not work: nvmlInit returned %d: %s", result,
                 nvml->fn.nvmlErrorString(result));
        return;
    }
    if (nvml->fn.nvmlSystemGetDriverVersion(nvml->version,
                                            sizeof(nvml->version)) != 0) {
        snprintf(nvml->version, sizeof(nvml->version), "unknown");
    }
    snprintf(nvml->why, sizeof(nvml->why), "NVML of driver %s", nvml->version);
    nvml->ready = 1;
}

static tmsg_nvml_t process_nvml;

static void open_process_nvml(void)
{
    tmsg_nvml_open(&process_nvml, "libnvidia-ml.so.1");
}

const tmsg_nvml_t *tmsg_nvml(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, open_process_nvml);
    return &process_nvml;
}

const char *tmsg_nvml_report(void) { return tmsg_nvml()->why; }
