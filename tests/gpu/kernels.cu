/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels.h"

#include <cuda_runtime.h>

#define BLOCKS 256
#define THREADS 256
#define WAIT_NS 10000000000ull

__device__ static uint8_t byte_at(uint64_t i, unsigned seed)
{
    return (uint8_t)(i * 7 + (i >> 8) * 31 + (i >> 20) + seed);
}

__device__ static unsigned long long now_ns()
{
    unsigned long long now;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

__global__ static void hold(const volatile int *go)
{
    unsigned long long since = now_ns();

    while (*go == 0 && now_ns() - since < WAIT_NS) {
    }
}

__global__ static void put(uint8_t *data, uint64_t bytes, unsigned seed)
{
    uint64_t step = (uint64_t)gridDim.x * blockDim.x;

    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
         i < bytes; i += step) {
        data[i] = byte_at(i, seed);
    }
}

__global__ static void count(const uint8_t *data, uint64_t bytes, unsigned seed,
                             unsigned long long *wrong)
{
    uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    unsigned long long mine = 0;

    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
         i < bytes; i += step) {
        mine += data[i] != byte_at(i, seed);
    }
    if (mine > 0) {
        atomicAdd(wrong, mine);
    }
}

static cudaStream_t stream_of(uint64_t stream)
{
    return (cudaStream_t)(uintptr_t)stream;
}

static unsigned long long *counted;
static int *flag;

/* Launched once each, for a module that is loaded when its kernel is first
 * needed may wait for the whole device. */
int kernels_open(volatile int **go_p, uint64_t stream)
{
    cudaError_t error = cudaHostAlloc(&counted, sizeof(*counted), 0);

    if (error == cudaSuccess) {
        error = cudaHostAlloc(&flag, sizeof(*flag), 0);
    }
    if (error != cudaSuccess) {
        return error;
    }
    *counted = 0;
    *flag = 1;
    hold<<<1, 1, 0, stream_of(stream)>>>(flag);
    put<<<1, 1, 0, stream_of(stream)>>>((uint8_t *)counted, 1, 1);
    count<<<1, 1, 0, stream_of(stream)>>>((uint8_t *)counted, 1, 1, counted);
    error = cudaGetLastError();
    if (error == cudaSuccess) {
        error = cudaStreamSynchronize(stream_of(stream));
    }
    *flag = 0;
    *go_p = flag;
    return error;
}

int kernels_write(uint8_t *data, uint64_t bytes, unsigned seed,
                  const volatile int *go, uint64_t stream)
{
    if (go != NULL) {
        hold<<<1, 1, 0, stream_of(stream)>>>(go);
    }
    put<<<BLOCKS, THREADS, 0, stream_of(stream)>>>(data, bytes, seed);
    return cudaGetLastError();
}

int kernels_count_wrong(const uint8_t *data, uint64_t bytes, unsigned seed,
                        uint64_t stream, unsigned long long *wrong_p)
{
    cudaError_t error;

    *counted = 0;
    count<<<BLOCKS, THREADS, 0, stream_of(stream)>>>(data, bytes, seed,
                                                     counted);
    error = cudaGetLastError();
    if (error == cudaSuccess) {
        error = cudaStreamSynchronize(stream_of(stream));
    }
    *wrong_p = *counted;
    return error;
}

const char *kernels_error(int error)
{
    return cudaGetErrorString((cudaError_t)error);
}
