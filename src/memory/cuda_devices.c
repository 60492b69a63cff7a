/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists the devices that NVIDIA's libraries know. */
#include <stdio.h>

#include "memory/cuda.h"
#include "memory/device.h"

/* NVML lists all devices of the machine, also those that CUDA hides from this
 * process. */
static bool nvml_at(void *arg, size_t position, tmsg_device_info_t *info)
{
    const tmsg_nvml_t *nvml = tmsg_nvml();
    tmsg_nvml_pci_t pci;
    unsigned count, node;
    void *device;

    (void)arg;
    if (!nvml->ready || nvml->fn.nvmlDeviceGetCount(&count) != 0 ||
        position >= count) {
        return false;
    }
    if (nvml->fn.nvmlDeviceGetHandleByIndex((unsigned)position, &device) != 0) {
        return true;
    }
    if (nvml->fn.pci(device, &pci) == 0) {
        snprintf(info->bus_id, sizeof(info->bus_id), "%04x:%02x:%02x.0",
                 pci.domain, pci.bus & 0xff, pci.device & 0x1f);
    }
    if (nvml->fn.nvmlDeviceGetUUID(device, info->uuid, sizeof(info->uuid)) !=
        0) {
        info->uuid[0] = '\0';
    }
    if (nvml->fn.nvmlDeviceGetName(device, info->title, sizeof(info->title)) !=
        0) {
        info->title[0] = '\0';
    }
    if (nvml->fn.nvmlDeviceGetNumaNodeId != NULL &&
        nvml->fn.nvmlDeviceGetNumaNodeId(device, &node) == 0) {
        info->numa_node = (int32_t)(node & INT32_MAX);
    }
    return true;
}

static bool cuda_at(void *arg, size_t position, tmsg_device_info_t *info)
{
    const tmsg_cuda_driver_t *driver = tmsg_cuda_driver();
    tmsg_device_identity_t identity;

    (void)arg;
    if (driver->outcome != TMSG_CUDA_READY ||
        position >= (size_t)driver->devices) {
        return false;
    }
    info->device.id = (int32_t)position;
    if (tmsg_cuda_identify(NULL, info->device, &identity) == TMSG_OK) {
        snprintf(info->title, sizeof(info->title), "%.*s",
                 (int)sizeof(info->title) - 1, identity.name);
        snprintf(info->uuid, sizeof(info->uuid), "%.*s",
                 (int)sizeof(info->uuid) - 1, identity.uuid);
        snprintf(info->bus_id, sizeof(info->bus_id), "%.*s",
                 (int)sizeof(info->bus_id) - 1, identity.bus_id);
    }
    return true;
}

const tmsg_device_source_t tmsg_device_sources[TMSG_DEVICE_SOURCES] = {
    {nvml_at, NULL}, {cuda_at, NULL}};
