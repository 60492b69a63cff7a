/* SPDX-License-Identifier: BSD-3-Clause */
/* gpu/sides.h - two processes that exchange tensors of one GPU, for programs
 * that use the public interface alone, and functions of the driver for what an
 * application has of its own. */
#ifndef TMSG_TESTS_GPU_SIDES_H
#define TMSG_TESTS_GPU_SIDES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include <tensormsg/tensormsg.h>

#define NO_GPU 3 /* exit code */
#define MIB (1ull << 20)

static const tmsg_stream_t none;
static const tmsg_device_t gpu = {TMSG_DEVICE_CUDA, 0};

/* They end the process with words unless all is well. */
void check(tmsg_status_t status, const char *what);
void expect(bool condition, const char *what);
#define CHECK(call) check((call), #call)
#define EXPECT(condition) expect((condition), #condition)

/* Returns a number above 0 of the environment, or the standard. */
int number_of(const char *name, int standard);

double seconds(void);

/* The driver. find() sets a pointer to a function of that name, which is there;
 * open_driver() has the library use the GPU, and sets `cuda`. */
extern const tmsg_domain_t *cuda;
bool has_function(const char *name);
void find(const char *name, void *function_p);
void open_driver(void);
void enter_gpu(void); /* its primary context is current until leave_gpu() */
void leave_gpu(void);

/* Memory of cudaMalloc()'s kind, which CUDA's IPC can share. */
void *gpu_alloc(uint64_t bytes);
void gpu_free(void *data);

/* One process. */
typedef struct {
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_endpoint_t *endpoint;
    int from, to; /* pipes */
} side_t;

void open_side(side_t *side, const tmsg_worker_params_t *params);
void close_side(side_t *side);

/* One side listens until it has an endpoint, the other dials it. The dialling
 * side knows where in await_url(), before which it may be slow. */
#define URL_BYTES 200
void listen_side(side_t *side);
void await_url(side_t *side, char url[URL_BYTES]);

/* Runs both in processes that never had a driver before. Returns whether both
 * ended well; the end of one that did not is that of the other. */
typedef void (*part_fn)(side_t *side, const void *arg);
bool run_sides(part_fn listens, part_fn dials, const void *arg);

/* Returns 0, or the exit code with which a GPU cannot be used here, which is
 * said. Leaves this process without a driver: who forks after cuInit() has no
 * CUDA. */
int look_for_gpu(void);

#endif
