/* SPDX-License-Identifier: BSD-3-Clause */
#include "fakes/cuda_inside.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAMES 64

typedef struct {
    const char *name;
    unsigned long calls;
} tally_t;

static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static bool ready;
static int devices;
static pid_t owner; /* who called cuInit() */
static unsigned long left;
static int armed_result;
static fake_failing_t armed_how;
static const char *failed;
static _Thread_local int answer; /* of the call that is under way */
static tally_t tallies[NAMES];
context_t fake_primaries[FAKE_DEVICES];
static int uses[FAKE_DEVICES];
static fake_stream_t *legacy[FAKE_DEVICES];
static _Thread_local fake_stream_t *per_thread[FAKE_DEVICES];
_Thread_local context_t *fake_stack[FAKE_DEPTH];
_Thread_local int fake_depth;

static int number(const char *variable, int otherwise)
{
    const char *text = getenv(variable);

    return text == NULL ? otherwise : atoi(text);
}

static void tally(const char *name)
{
    for (int i = 0; i < NAMES; i++) {
        if (tallies[i].name == NULL || strcmp(tallies[i].name, name) == 0) {
            tallies[i].name = name;
            tallies[i].calls++;
            return;
        }
    }
    abort();
}

static unsigned long calls(const char *name)
{
    for (int i = 0; i < NAMES && tallies[i].name != NULL; i++) {
        if (strcmp(tallies[i].name, name) == 0) {
            return tallies[i].calls;
        }
    }
    return 0;
}

static bool is_armed(const char *name)
{
    if (left > 0 && --left == 0) {
        failed = name;
        return true;
    }
    return failed != NULL && armed_how == FAKE_DONE_ALWAYS;
}

/* Every call begins so. */
int fake_begin(const char *name, bool needs_context)
{
    int result = OK;
    bool armed;

    pthread_mutex_lock(&mutex);
    tally(name);
    armed = is_armed(name);
    answer = armed ? armed_result : OK;
    if (armed && armed_how == FAKE_REFUSED) {
        result = armed_result;
    } else if (!ready || getpid() != owner) {
        result = NOT_INITIALIZED;
    } else if (needs_context && fake_depth == 0) {
        fake_fault_set("%s was called with no context current", name);
        result = INVALID_CONTEXT;
    } else if (needs_context && fake_stack[fake_depth - 1]->primary &&
               uses[fake_stack[fake_depth - 1]->device] == 0) {
        fake_fault_set("%s: the context is gone", name);
        result = CONTEXT_DESTROYED;
    } else if (needs_context && fake_stack[fake_depth - 1]->reset) {
        result = CONTEXT_DESTROYED;
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

int fake_current(void) { return fake_stack[fake_depth - 1]->device; }

int fake_end(int result) { return result == OK ? answer : result; }

/* As by a device. */
int fake_end_late(void)
{
    return fake_end(fake_fault() == NULL ? OK : ILLEGAL_ADDRESS);
}

/* NULL: a fault. */
fake_stream_t *fake_stream_of(void *handle, const char *name)
{
    int device = fake_current();

    if (handle == NULL || handle == (void *)1) {
        if (legacy[device] == NULL) {
            legacy[device] = fake_stream_new(device, true, false, NULL);
        }
        return legacy[device];
    }
    if (handle == (void *)2) {
        if (per_thread[device] == NULL) {
            per_thread[device] = fake_stream_new(device, false, false, NULL);
        }
        return per_thread[device];
    }
    if (fake_stream_freed(handle)) {
        fake_fault_set("%s: the stream was destroyed", name);
        return NULL;
    }
    if (fake_stream_device(handle) != device) {
        fake_fault_set("%s: a stream of device %d, and %d is current", name,
                       fake_stream_device(handle), device);
        return NULL;
    }
    if (fake_stream_owner(handle) != fake_stack[fake_depth - 1]) {
        fake_fault_set("%s: a stream of another context", name);
        return NULL;
    }
    return handle;
}

bool fake_event_ok(void *event, const char *name)
{
    if (fake_event_freed(event)) {
        fake_fault_set("%s: the event was destroyed", name);
        return false;
    }
    return true;
}

bool fake_event_here(void *event, const char *name)
{
    if (fake_event_device(event) != fake_current()) {
        fake_fault_set("%s: an event of device %d, and %d is current", name,
                       fake_event_device(event), fake_current());
        return false;
    }
    if (fake_event_owner(event) != fake_stack[fake_depth - 1]) {
        fake_fault_set("%s: an event of another context", name);
        return false;
    }
    return true;
}

API int cuInit(unsigned flags)
{
    int result = number("FAKE_CUDA_INIT", OK);

    tally(__func__);
    if (is_armed(__func__)) {
        return armed_result;
    }
    if (ready && getpid() != owner) {
        return NOT_INITIALIZED;
    }
    owner = getpid();
    devices = number("FAKE_CUDA_DEVICES", 2);
    for (int i = 0; i < FAKE_DEVICES; i++) {
        fake_primaries[i] = (context_t){.device = i, .primary = true};
    }
    ready = result == OK && flags == 0 && devices > 0;
    return result == OK && devices == 0 ? NO_DEVICE : result;
}

API int cuDriverGetVersion(int *version)
{
    tally(__func__);
    if (is_armed(__func__)) {
        return armed_result;
    }
    *version = number("FAKE_CUDA_VERSION", FAKE_CUDA_AGE);
    return OK;
}

#if FAKE_CUDA_AGE >= 6000
API int cuGetErrorName(int error, const char **text)
{
    *text = error == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
                                   : "CUDA_ERROR_OTHER";
    return OK;
}

API int cuGetErrorString(int error, const char **text)
{
    *text = NULL;
    if (error == 998) {
        return INVALID_VALUE;
    }
    *text = error == OUT_OF_MEMORY ? "out of memory" : "something went wrong";
    return OK;
}
#endif

API int cuDeviceGetCount(int *count)
{
    ANYWHERE;
    *count = number("FAKE_CUDA_COUNT", devices);
    return fake_end(OK);
}

API int cuDeviceGet(int *device, int ordinal)
{
    ANYWHERE;
    if (ordinal < 0 || ordinal >= devices) {
        return INVALID_DEVICE;
    }
    *device = ordinal;
    return fake_end(OK);
}

static int check_device(int device)
{
    return device >= 0 && device < devices ? OK : INVALID_DEVICE;
}

API int cuDeviceGetName(char *name, int bytes, int device)
{
    ANYWHERE;
    snprintf(name, (size_t)bytes, "Fake GPU %d%s", device,
             getenv("FAKE_CUDA_MIG") == NULL ? "" : " MIG 1g.10gb");
    return fake_end(check_device(device));
}

#if FAKE_CUDA_AGE >= 9020
static int uuid(unsigned char *bytes, int device)
{
    for (int i = 0; i < 16; i++) {
        bytes[i] = (unsigned char)(device * 16 + i);
    }
    return check_device(device);
}

API int cuDeviceGetUuid(unsigned char *bytes, int device)
{
    ANYWHERE;
    return fake_end(uuid(bytes, device));
}
#endif

#if FAKE_CUDA_AGE >= 11040
API int cuDeviceGetUuid_v2(unsigned char *bytes, int device)
{
    ANYWHERE;
    return fake_end(uuid(bytes, device));
}
#endif

API int cuDeviceGetPCIBusId(char *id, int bytes, int device)
{
    const char *domain = getenv("FAKE_CUDA_DOMAIN");

    ANYWHERE;
    snprintf(id, (size_t)bytes, "%s:%02X:00.0",
             domain == NULL ? "0000" : domain, 0x33 + device);
    return fake_end(check_device(device));
}

API int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    ANYWHERE;
    *value = attribute == 115 ? number("FAKE_CUDA_POOLS", 1) : 0;
    return fake_end(check_device(device));
}

#if FAKE_CUDA_AGE >= 7000
API int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    ANYWHERE;
    *flags = 0;
    *active = uses[device] > 0 && !fake_primaries[device].reset;
    return fake_end(check_device(device));
}

API int cuDevicePrimaryCtxRetain(void **context, int device)
{
    ANYWHERE;
    pthread_mutex_lock(&mutex);
    uses[device]++;
    fake_primaries[device].reset = false;
    pthread_mutex_unlock(&mutex);
    *context = &fake_primaries[device];
    return fake_end(check_device(device));
}

#if FAKE_CUDA_AGE >= 11000
API int cuDevicePrimaryCtxRelease_v2(int device)
#else
API int cuDevicePrimaryCtxRelease(int device)
#endif
{
    ANYWHERE;
    pthread_mutex_lock(&mutex);
    uses[device]--;
    pthread_mutex_unlock(&mutex);
    return fake_end(OK);
}
#endif

API int cuCtxPushCurrent_v2(void *context)
{
    ANYWHERE;
    if (context == NULL || fake_depth == FAKE_DEPTH) {
        return INVALID_CONTEXT;
    }
    fake_stack[fake_depth++] = context;
    return fake_end(OK);
}

API int cuCtxPopCurrent_v2(void **context)
{
    ANYWHERE;
    if (fake_depth == 0) {
        return INVALID_CONTEXT;
    }
    *context = fake_stack[--fake_depth];
    return fake_end(OK);
}

API int cuCtxGetCurrent(void **context)
{
    ANYWHERE;
    *context = fake_depth == 0 ? NULL : fake_stack[fake_depth - 1];
    return fake_end(OK);
}

#if FAKE_CUDA_AGE >= 12000
API int cuCtxGetId(void *context, unsigned long long *id)
{
    const context_t *asked = context;

    ANYWHERE;
    if (asked->reset) {
        return CONTEXT_DESTROYED;
    }
    *id = asked->primary ? 1u + (unsigned)asked->device + 100u * asked->resets
                         : (uintptr_t)asked;
    return fake_end(OK);
}
#endif

API int cuCtxGetDevice(int *device)
{
    ANYWHERE;
    if (fake_depth == 0) {
        return INVALID_CONTEXT;
    }
    *device = fake_current();
    return fake_end(OK);
}

#if FAKE_CUDA_AGE >= 7000
static unsigned memory_type(const fake_block_t *block)
{
    return block->kind == FAKE_PINNED ? 1 : 2;
}

/* The newest attribute that there is. */
#define NEWEST_ATTRIBUTE                                                       \
    (FAKE_CUDA_AGE >= 11030 ? 17 : FAKE_CUDA_AGE >= 10020 ? 13 : 9)

static int attribute_of(const fake_block_t *block, int attribute, void *value)
{
    bool owned = block->kind == FAKE_PLAIN || block->kind == FAKE_MANAGED ||
                 block->kind == FAKE_PINNED;

    switch (attribute) {
    case 1:
        *(void **)value = owned ? block->owner : NULL;
        return OK;
    case 2:
        *(unsigned *)value = memory_type(block);
        return OK;
    case 8:
        *(bool *)value = block->kind == FAKE_MANAGED;
        return OK;
    case 9:
        *(int *)value = block->device < 0 ? 0 : block->device;
        return OK;
    case 10:
        *(bool *)value = block->kind == FAKE_PLAIN;
        return OK;
    case 11:
        *(uintptr_t *)value = block->base;
        return OK;
    case 12:
        *(size_t *)value = block->bytes;
        return OK;
    case 17:
        *(const void **)value =
            block->kind == FAKE_POOL ? fake_primaries : NULL;
        return OK;
    default:
        return INVALID_VALUE;
    }
}

API int cuPointerGetAttributes(unsigned count, const int *attributes,
                               void **values, uint64_t address)
{
    fake_block_t block = {.device = -2};
    bool found = fake_find((uintptr_t)address, &block);

    ANYWHERE;
    if (fake_depth == 0) {
        return INVALID_CONTEXT;
    }
    for (unsigned i = 0; i < count; i++) {
        if (attributes[i] > NEWEST_ATTRIBUTE) {
            return INVALID_VALUE;
        }
    }
    for (unsigned i = 0; i < count; i++) {
        if (!found && (attributes[i] == 2 || attributes[i] == 9)) {
            *(int *)values[i] = attributes[i] == 9 ? -2 : 0;
        } else if (found &&
                   attribute_of(&block, attributes[i], values[i]) != OK) {
            return INVALID_VALUE;
        }
    }
    return fake_end(OK);
}
#endif

#if FAKE_CUDA_AGE >= 11000
API int cuMemRetainAllocationHandle(uint64_t *handle, void *address)
{
    fake_block_t block;

    ANYWHERE;
    if (!fake_find((uintptr_t)address, &block) || block.kind != FAKE_MAPPED) {
        return INVALID_VALUE;
    }
    *handle = block.base;
    return fake_end(OK);
}

API int cuMemRelease(uint64_t handle)
{
    (void)handle;
    ANYWHERE;
    return fake_end(OK);
}
#endif

static uintptr_t app_alloc(int device, size_t bytes, fake_kind_t kind)
{
    return fake_alloc(device, bytes, 256, kind, &fake_primaries[device], NULL);
}

API int cuMemAlloc_v2(uint64_t *address, size_t bytes)
{
    uintptr_t base;

    IN_CONTEXT;
    fake_unsafe();
    if (bytes == 0) {
        return INVALID_VALUE;
    }
    base = fake_alloc(fake_current(), bytes, 256, FAKE_PLAIN,
                      fake_stack[fake_depth - 1], NULL);
    if (base == 0) {
        return OUT_OF_MEMORY;
    }
    *address = base;
    return fake_end(OK);
}

static bool is_here(uintptr_t address, const char *name)
{
    fake_block_t block;

    if (fake_find(address, &block) && block.device >= 0 &&
        block.device != fake_current()) {
        fake_fault_set("%s: memory of device %d, and %d is current", name,
                       block.device, fake_current());
        return false;
    }
    return true;
}

API int cuMemFree_v2(uint64_t address)
{
    IN_CONTEXT;
    fake_unsafe();
    return is_here((uintptr_t)address, __func__) &&
                   fake_free((uintptr_t)address, NULL)
               ? fake_end_late()
               : INVALID_VALUE;
}

/* No memory is shared with other processes: gpu/sim is the driver for that. */
API int cuIpcGetMemHandle(void *handle, uint64_t address)
{
    (void)handle;
    (void)address;
    IN_CONTEXT;
    return NOT_SUPPORTED;
}

typedef struct {
    char bytes[64];
} handle_t;

API int cuIpcOpenMemHandle_v2(uint64_t *address, handle_t handle,
                              unsigned flags)
{
    (void)address;
    (void)handle;
    (void)flags;
    IN_CONTEXT;
    return NOT_SUPPORTED;
}

API int cuIpcCloseMemHandle(uint64_t address)
{
    (void)address;
    IN_CONTEXT;
    return INVALID_VALUE;
}

#if FAKE_CUDA_AGE >= 11020
/* CUmemPoolProps and the pools of it, one a device. */
typedef struct {
    int type, handles, place, device;
    void *security;
    size_t most;
    unsigned char reserved[56];
} pool_props_t;

typedef struct {
    bool made;
    uint64_t threshold;
} pool_t;

static pool_t pools[FAKE_DEVICES];

API int cuMemPoolCreate(void **pool, const pool_props_t *props)
{
    ANYWHERE;
    if (props->type != 1 || props->handles != 0 || props->place != 1 ||
        check_device(props->device) != OK) {
        return INVALID_VALUE;
    }
    if (number("FAKE_CUDA_OWN_POOLS", 1) == 0) {
        return OUT_OF_MEMORY;
    }
    if (pools[props->device].made) {
        fake_fault_set("%s: a second pool of device %d", __func__,
                       props->device);
    }
    pools[props->device] = (pool_t){.made = true};
    *pool = &pools[props->device];
    return fake_end(OK);
}

API int cuMemPoolSetAttribute(void *pool, int attribute, void *value)
{
    ANYWHERE;
    if (attribute != 4) {
        return INVALID_VALUE;
    }
    memcpy(&((pool_t *)pool)->threshold, value, sizeof(uint64_t));
    return fake_end(OK);
}

API int cuMemPoolDestroy(void *pool)
{
    ANYWHERE;
    ((pool_t *)pool)->made = false;
    return fake_end(OK);
}

static int alloc_in_order(const char *name, uint64_t *address, size_t bytes,
                          void *handle)
{
    fake_stream_t *stream = fake_stream_of(handle, name);
    uintptr_t base;

    if (stream == NULL || bytes == 0) {
        return INVALID_VALUE;
    }
    base = fake_alloc(fake_current(), bytes, 256, FAKE_POOL, NULL, stream);
    if (base == 0) {
        return OUT_OF_MEMORY;
    }
    *address = base;
    return fake_end(OK);
}

API int cuMemAllocAsync(uint64_t *address, size_t bytes, void *stream)
{
    IN_CONTEXT;
    return alloc_in_order(__func__, address, bytes, stream);
}

API int cuMemAllocFromPoolAsync(uint64_t *address, size_t bytes, void *pool,
                                void *stream)
{
    IN_CONTEXT;
    if (pool != &pools[fake_current()] || !pools[fake_current()].made) {
        return INVALID_VALUE;
    }
    return alloc_in_order(__func__, address, bytes, stream);
}

API int cuMemFreeAsync(uint64_t address, void *handle)
{
    fake_stream_t *stream;

    IN_CONTEXT;
    stream = fake_stream_of(handle, __func__);
    return stream != NULL && is_here((uintptr_t)address, __func__) &&
                   fake_free((uintptr_t)address, stream)
               ? fake_end(OK)
               : INVALID_VALUE;
}
#endif

/* As where it waits for a kernel. */
static pthread_mutex_t pin_gate = PTHREAD_MUTEX_INITIALIZER;

static void hold_pins(bool hold)
{
    if (hold) {
        pthread_mutex_lock(&pin_gate);
    } else {
        pthread_mutex_unlock(&pin_gate);
    }
}

API int cuMemHostRegister_v2(void *data, size_t bytes, unsigned flags)
{
    IN_CONTEXT;
    fake_unsafe();
    hold_pins(true);
    hold_pins(false);
    if (flags != 1 || number("FAKE_CUDA_PIN", OK) != OK) {
        return flags != 1 ? INVALID_VALUE : number("FAKE_CUDA_PIN", OK);
    }
    return fake_end(fake_pin((uintptr_t)data, bytes) ? OK : ALREADY_REGISTERED);
}

API int cuMemHostUnregister(void *data)
{
    IN_CONTEXT;
    return fake_end(fake_unpin((uintptr_t)data) ? OK : NOT_REGISTERED);
}

static void arm(unsigned long n, int result, fake_failing_t how)
{
    left = n;
    armed_result = result;
    armed_how = how;
    failed = NULL;
}

static const char *disarm(void)
{
    left = 0;
    armed_how = FAKE_REFUSED;
    return failed;
}

static void block(void *stream) { fake_block(stream); }
static void unblock(void *stream) { fake_unblock(stream); }
static int primary_uses(int device) { return uses[device]; }

static uint64_t pool_keeps(int device)
{
#if FAKE_CUDA_AGE >= 11020
    return pools[device].made ? pools[device].threshold : 0;
#else
    (void)device;
    return 0;
#endif
}
static int stack_depth(void) { return fake_depth; }

static void *app_stream(int device)
{
    pthread_mutex_lock(&mutex);
    uses[device]++;
    pthread_mutex_unlock(&mutex);
    return fake_stream_new(device, false, true, &fake_primaries[device]);
}

static void reset(int device)
{
    fake_primaries[device].reset = true;
    fake_primaries[device].resets++;
    legacy[device] = NULL;
    per_thread[device] = NULL;
#if FAKE_CUDA_AGE >= 11020
    pools[device].made = false;
#endif
    fake_reset(device);
}

static void *own_context(int device)
{
    context_t *context = calloc(1, sizeof(*context));

    if (context == NULL) {
        abort();
    }
    context->device = device;
    return context;
}

API const fake_cuda_t *fake_cuda(void);
const fake_cuda_t *fake_cuda(void)
{
    static const fake_cuda_t control = {
        .arm = arm,
        .disarm = disarm,
        .calls = calls,
        .fault = fake_fault,
        .fault_clear = fake_fault_clear,
        .blocks = fake_blocks,
        .events = fake_events,
        .peek = fake_peek,
        .poke = fake_poke,
        .block = block,
        .unblock = unblock,
        .primary_uses = primary_uses,
        .depth = stack_depth,
        .finish = fake_finish,
        .alloc = app_alloc,
        .stream = app_stream,
        .reset = reset,
        .context = own_context,
        .pool_keeps = pool_keeps,
        .hold_pins = hold_pins,
        .capture = fake_capture,
        .captured = fake_captured,
        .pinned_only = fake_pinned_only,
    };

    return &control;
}
