/* SPDX-License-Identifier: BSD-3-Clause */
/* A libnvidia-ml.so.1 of the devices of fakes/cuda.c. FAKE_NVML_INIT: what
 * nvmlInit() says; FAKE_CUDA_DEVICES as there, unless FAKE_NVML_DEVICES says
 * how many there are. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef FAKE_CUDA_AGE
#define FAKE_CUDA_AGE 13000
#endif

#define API __attribute__((visibility("default")))

enum { OK = 0, INVALID_ARGUMENT = 2, UNKNOWN = 999 };

static int number(const char *variable, int otherwise)
{
    const char *text = getenv(variable);

    return text == NULL ? otherwise : atoi(text);
}

static int devices(void)
{
    return number("FAKE_NVML_DEVICES", number("FAKE_CUDA_DEVICES", 2));
}
#if FAKE_CUDA_AGE >= 8000
static unsigned domain(void)
{
    const char *text = getenv("FAKE_CUDA_DOMAIN");

    return text == NULL ? 0 : (unsigned)strtoul(text, NULL, 16);
}
#endif

static int index_of(void *device) { return (int)(intptr_t)device - 1; }

API int nvmlInit_v2(void) { return number("FAKE_NVML_INIT", OK); }

API int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = (unsigned)devices();
    return OK;
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    if ((int)index >= devices()) {
        return INVALID_ARGUMENT;
    }
    *device = (void *)((uintptr_t)index + 1);
    return OK;
}

API int nvmlDeviceGetUUID(void *device, char *uuid, unsigned bytes)
{
    int at = index_of(device) * 16;

    snprintf(uuid, bytes,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-"
             "%02x%02x%02x%02x%02x%02x",
             at, at + 1, at + 2, at + 3, at + 4, at + 5, at + 6, at + 7, at + 8,
             at + 9, at + 10, at + 11, at + 12, at + 13, at + 14, at + 15);
    return OK;
}

API int nvmlDeviceGetName(void *device, char *name, unsigned bytes)
{
    snprintf(name, bytes, "Fake GPU %d", index_of(device));
    return OK;
}

#if FAKE_CUDA_AGE >= 9020
API int nvmlDeviceGetPciInfo_v3(void *device, void *info)
{
    struct {
        char short_id[16];
        unsigned domain, bus, device, ids, subsystem;
        char id[32];
    } *pci = info;

    if (index_of(device) >= devices()) {
        return INVALID_ARGUMENT;
    }
    pci->domain = domain();
    pci->bus = 0x33 + (unsigned)index_of(device);
    pci->device = 0;
    snprintf(pci->id, sizeof(pci->id), "%08X:%02X:00.0", pci->domain, pci->bus);
    return OK;
}

API int nvmlDeviceGetNumaNodeId(void *device, unsigned *node)
{
    *node = (unsigned)index_of(device);
    return OK;
}
#elif FAKE_CUDA_AGE >= 8000
API int nvmlDeviceGetPciInfo_v2(void *device, void *info)
{
    struct {
        char id[16];
        unsigned domain, bus, device, ids, subsystem, reserved[4];
    } *pci = info;

    if (index_of(device) >= devices()) {
        return INVALID_ARGUMENT;
    }
    pci->domain = domain();
    pci->bus = 0x33 + (unsigned)index_of(device);
    pci->device = 0;
    pci->reserved[3] = 0;
    return OK;
}
#endif

API int nvmlSystemGetDriverVersion(char *version, unsigned bytes)
{
    if (number("FAKE_NVML_VERSION", OK) != OK) {
        return UNKNOWN;
    }
    snprintf(version, bytes, "%d.1", FAKE_CUDA_AGE / 1000);
    return OK;
}

API const char *nvmlErrorString(int result)
{
    return result == OK ? "Success" : "something went wrong";
}
