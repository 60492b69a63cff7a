/* SPDX-License-Identifier: BSD-3-Clause */
/* The libnvidia-ml.so.1 beside the simulated driver: what the library asks
 * (src/memory/nvml.c), and what UCX 1.22 asks (cuda_nvml.c). */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

enum { OK = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3 };

static unsigned number(const char *variable, unsigned otherwise)
{
    const char *text = getenv(variable);

    return text == NULL ? otherwise : (unsigned)atoi(text);
}

static unsigned index_of(void *device)
{
    return (unsigned)(uintptr_t)device - 1;
}

API int nvmlInit_v2(void) { return OK; }

API int nvmlShutdown(void) { return OK; }

API int nvmlSystemGetDriverVersion(char *version, unsigned bytes)
{
    snprintf(version, bytes, "580.0");
    return OK;
}

API const char *nvmlErrorString(int result)
{
    return result == OK ? "Success" : "Not Supported";
}

API int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = number("SIM_CUDA_DEVICES", 1);
    return OK;
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    if (index >= number("SIM_CUDA_DEVICES", 1)) {
        return INVALID_ARGUMENT;
    }
    *device = (void *)((uintptr_t)index + 1);
    return OK;
}

API int nvmlDeviceGetUUID(void *device, char *uuid, unsigned bytes)
{
    snprintf(uuid, bytes, "GPU-51515151-5151-5151-5151-5151515151%02x",
             index_of(device));
    return OK;
}

API int nvmlDeviceGetName(void *device, char *name, unsigned bytes)
{
    (void)device;
    snprintf(name, bytes, "Simulated GPU");
    return OK;
}

API int nvmlDeviceGetPciInfo_v3(void *device, void *info)
{
    struct {
        char short_id[16];
        unsigned domain, bus, device, ids, subsystem;
        char id[32];
    } *pci = info;

    memset(pci, 0, sizeof(*pci));
    pci->bus = 0x33 + index_of(device);
    snprintf(pci->id, sizeof(pci->id), "00000000:%02X:00.0", pci->bus);
    return OK;
}

/* nvmlFieldValue_t; UCX asks how many NVLinks there are, field 91. */
typedef struct {
    unsigned field, scope;
    long long timestamp, latency;
    int type, result;
    union {
        unsigned number;
        uint64_t all;
    } value;
} field_t;

API int nvmlDeviceGetFieldValues(void *device, int count, void *values)
{
    (void)device;
    for (int i = 0; i < count; i++) {
        field_t *field = (field_t *)values + i;

        field->type = 1; /* NVML_VALUE_TYPE_UNSIGNED_INT */
        field->result = field->field == 91 ? OK : NOT_SUPPORTED;
        field->value.number = number("SIM_CUDA_NVLINKS", 0);
    }
    return OK;
}

/* UCX looks for the second version, as nvml.h has it. */
API int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link,
                                            void *pci)
{
    (void)link;
    return nvmlDeviceGetPciInfo_v3(device, pci);
}

/* No fabric of several machines (cuda_ipc_md.c,
 * uct_cuda_ipc_md_check_fabric_info()). */
API int nvmlDeviceGetGpuFabricInfoV(void *device, void *info)
{
    (void)device;
    (void)info;
    return NOT_SUPPORTED;
}
