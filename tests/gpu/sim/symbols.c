/* SPDX-License-Identifier: BSD-3-Clause */
/* cuGetProcAddress(): names, and since which version of CUDA each is what it
 * is. The driver exports the same functions. */
#include "gpu/sim/inside.h"

#include <dlfcn.h>
#include <stdlib.h>

static const struct {
    const char *name;
    int version;
    const char *symbol; /* NULL: as the name */
} symbols[] = {
    {"cuCtxCreate", 3020, "cuCtxCreate_v2"},
    {"cuCtxCreate", 13000, "cuCtxCreate_v4"},
    {"cuCtxDestroy", 4000, "cuCtxDestroy_v2"},
    {"cuCtxPopCurrent", 4000, "cuCtxPopCurrent_v2"},
    {"cuCtxPushCurrent", 4000, "cuCtxPushCurrent_v2"},
    {"cuDeviceGetUuid", 11040, "cuDeviceGetUuid_v2"},
    {"cuDevicePrimaryCtxRelease", 11000, "cuDevicePrimaryCtxRelease_v2"},
    {"cuDevicePrimaryCtxReset", 11000, "cuDevicePrimaryCtxReset_v2"},
    {"cuDeviceTotalMem", 3020, "cuDeviceTotalMem_v2"},
    {"cuEventDestroy", 4000, "cuEventDestroy_v2"},
    {"cuGetProcAddress", 12000, "cuGetProcAddress_v2"},
    {"cuIpcOpenMemHandle", 11000, "cuIpcOpenMemHandle_v2"},
    {"cuMemAlloc", 3020, "cuMemAlloc_v2"},
    {"cuMemAllocHost", 3020, "cuMemAllocHost_v2"},
    {"cuMemFree", 3020, "cuMemFree_v2"},
    {"cuMemGetAddressRange", 3020, "cuMemGetAddressRange_v2"},
    {"cuMemGetInfo", 3020, "cuMemGetInfo_v2"},
    {"cuMemHostGetDevicePointer", 3020, "cuMemHostGetDevicePointer_v2"},
    {"cuMemHostRegister", 6050, "cuMemHostRegister_v2"},
    {"cuMemcpyBatchAsync", 12080, "cuMemcpyBatchAsync"},
    {"cuMemcpyBatchAsync", 13000, "cuMemcpyBatchAsync_v2"},
    {"cuMemcpyDtoD", 3020, "cuMemcpyDtoD_v2"},
    {"cuMemcpyDtoDAsync", 3020, "cuMemcpyDtoDAsync_v2"},
    {"cuMemcpyDtoH", 3020, "cuMemcpyDtoH_v2"},
    {"cuMemcpyDtoHAsync", 3020, "cuMemcpyDtoHAsync_v2"},
    {"cuMemcpyHtoD", 3020, "cuMemcpyHtoD_v2"},
    {"cuMemcpyHtoDAsync", 3020, "cuMemcpyHtoDAsync_v2"},
    {"cuMemsetD8", 3020, "cuMemsetD8_v2"},
    {"cuStreamBeginCapture", 10010, "cuStreamBeginCapture_v2"},
    {"cuStreamDestroy", 4000, "cuStreamDestroy_v2"},
    {"cuStreamWaitValue64", 11070, "cuStreamWaitValue64_v2"},
    {"cuStreamWriteValue32", 11070, "cuStreamWriteValue32_v2"},
    {"cuStreamWriteValue64", 11070, "cuStreamWriteValue64_v2"},
};

static bool is_missing(const char *name)
{
    const char *names = getenv("SIM_CUDA_MISSING");
    size_t length = strlen(name);

    for (const char *at = names; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, length) == 0 &&
            (at[length] == ',' || at[length] == '\0')) {
            return true;
        }
    }
    return false;
}

/* The newest that is not newer than what was asked for. */
static const char *symbol_of(const char *name, int version)
{
    const char *found = NULL;
    bool known = false;

    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        if (strcmp(symbols[i].name, name) == 0) {
            known = true;
            found = symbols[i].version <= version ? symbols[i].symbol : found;
        }
    }
    return known ? found : name;
}

/* "If the symbol is not found, *pfn is NULL and the call returns
 * CUDA_ERROR_NOT_FOUND"; why_p: 1 is CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND. */
API int cuGetProcAddress_v2(const char *name, void **function, int version,
                            uint64_t flags, int *why)
{
    const char *symbol;
    Dl_info own;
    void *library;

    (void)flags;
    *function = NULL;
    symbol = is_missing(name) ? NULL : symbol_of(name, version);
    if (symbol != NULL && dladdr((void *)cuGetProcAddress_v2, &own) != 0) {
        library = dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD);
        if (library != NULL) {
            *function = dlsym(library, symbol);
            dlclose(library);
        }
    }
    if (why != NULL) {
        *why = *function == NULL;
    }
    return *function == NULL ? NOT_FOUND : OK;
}

API int cuGetProcAddress(const char *name, void **function, int version,
                         uint64_t flags)
{
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
