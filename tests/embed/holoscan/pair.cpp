/* SPDX-License-Identifier: BSD-3-Clause */
/* pair.cpp [ROUNDS] [cuda] - examples/embed/holoscan in a pipeline: a source, a
 * SendOp, a ReceiveOp and a sink, started and stopped again and again. With
 * `cuda` the pixels are on the first GPU, written by a stream, and received
 * into an allocator of the pipeline's. */
#include <dirent.h>
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tensormsg_ops.hpp"

namespace
{

constexpr int64_t FRAMES = 20, HEIGHT = 60, WIDTH = 80, ROW = 3 * WIDTH;
constexpr size_t BYTES = HEIGHT * ROW;
const tmsg_stream_t no_stream = {};
tmsg_device_t device = {TMSG_DEVICE_CPU, 0};
tmsg_stream_t stream = {};
const tmsg_domain_t *domain;
std::atomic<int> blocks; /* that were allocated and not freed */

void fail(const char *what)
{
    fprintf(stderr, "pair: %s\n", what);
    exit(1);
}

void check(tmsg_status_t status)
{
    if (status != TMSG_OK) {
        fail(tmsg_error_message());
    }
}

void *take_block()
{
    void *data;

    check(domain->alloc(domain->arg, device, BYTES, 64, no_stream, &data));
    blocks++;
    return data;
}

void give_block(void *data)
{
    domain->free(domain->arg, device, data, BYTES, no_stream);
    blocks--;
}

/* As an operator has it of another library's. */
std::shared_ptr<holoscan::Tensor> wrap(const tmsg_tensor_t &tensor,
                                       tmsg_release_fn release, void *arg)
{
    tmsg_dlpack_params_t params = {};
    DLManagedTensor *managed;

    params.field_mask = TMSG_DLPACK_PARAM_RELEASE;
    params.release = release;
    params.release_arg = arg;
    check(tmsg_tensor_to_dlpack(&tensor, &params, &managed));
    return std::make_shared<holoscan::Tensor>(managed);
}

class SourceOp : public holoscan::Operator
{
  public:
    HOLOSCAN_OPERATOR_FORWARD_ARGS(SourceOp)

    void setup(holoscan::OperatorSpec &spec) override
    {
        spec.output<holoscan::TensorMap>("out");
    }

    void compute(holoscan::InputContext &, holoscan::OutputContext &output,
                 holoscan::ExecutionContext &) override
    {
        static uint8_t pixels[FRAMES][BYTES];
        const int64_t shape[] = {HEIGHT, WIDTH, 3};
        auto gain = new float(0.5F * static_cast<float>(frame_));
        holoscan::TensorMap tensors;
        tmsg_tensor_t tensor = {};

        memset(pixels[frame_], static_cast<int>(frame_), BYTES);
        tensor.data = take_block();
        tensor.device = device;
        tensor.dtype = {TMSG_DTYPE_UINT, 8, 1};
        tensor.ndim = 3;
        tensor.shape = shape;
        check(domain->copy_in(domain->arg, device, tensor.data, pixels[frame_],
                              BYTES, stream));
        tensors.insert({"pixels", wrap(tensor, give_block, tensor.data)});

        tensor = {};
        tensor.data = gain;
        tensor.device = {TMSG_DEVICE_CPU, 0};
        tensor.dtype = {TMSG_DTYPE_FLOAT, 32, 1};
        tensors.insert(
            {"gain",
             wrap(
                 tensor, [](void *arg) { delete static_cast<float *>(arg); },
                 gain)});
        output.set_cuda_stream(reinterpret_cast<cudaStream_t>(stream.handle),
                               "out");
        output.emit(tensors, "out");
        frame_++;
    }

  private:
    int64_t frame_ = 0;
};

class SinkOp : public holoscan::Operator
{
  public:
    HOLOSCAN_OPERATOR_FORWARD_ARGS(SinkOp)
    SinkOp() = default;

    void setup(holoscan::OperatorSpec &spec) override
    {
        spec.input<holoscan::TensorMap>("in");
    }

    void compute(holoscan::InputContext &input, holoscan::OutputContext &,
                 holoscan::ExecutionContext &) override
    {
        auto tensors = input.receive<holoscan::TensorMap>("in").value();
        auto &pixels = *tensors.at("pixels");
        auto &shape = pixels.dl_ctx()->tensor.dl_tensor.shape;
        uint8_t byte;

        check(domain->copy_out(domain->arg, device, &byte,
                               static_cast<const uint8_t *>(pixels.data()) +
                                   BYTES - 1,
                               1, no_stream));
        if (byte != frame_ || shape[0] != HEIGHT || shape[2] != 3 ||
            *static_cast<float *>(tensors.at("gain")->data()) !=
                0.5F * static_cast<float>(frame_)) {
            fail("a frame is not as it was sent");
        }
        if (pixels.device().device_type !=
            static_cast<DLDeviceType>(device.type)) {
            fail("a frame came to another device");
        }
        if (++frame_ == FRAMES) {
            fragment()->stop_execution();
        }
    }

  private:
    int64_t frame_ = 0;
};

class BlockAllocator : public holoscan::Allocator
{
  public:
    nvidia::byte *allocate(uint64_t size,
                           holoscan::MemoryStorageType type) override
    {
        if (size > BYTES || type != holoscan::MemoryStorageType::kDevice) {
            return nullptr;
        }
        calls++;
        return static_cast<nvidia::byte *>(take_block());
    }
    void free(nvidia::byte *pointer) override { give_block(pointer); }

    int calls = 0;
};

class App : public holoscan::Application
{
  public:
    App(const char *from, const char *to) : from_(from), to_(to) {}

    void compose() override
    {
        using holoscan::Arg;
        std::shared_ptr<holoscan::Allocator> memory = allocator;
        auto source = make_operator<SourceOp>(
            "source",
            make_condition<holoscan::CountCondition>("frames", FRAMES));
        auto send = make_operator<tensormsg::SendOp>(
            "send", Arg("url", to_),
            Arg("waiting", static_cast<uint32_t>(FRAMES)));
        auto receive = make_operator<tensormsg::ReceiveOp>(
            "receive", Arg("url", from_), Arg("allocator", memory));
        auto sink = make_operator<SinkOp>("sink");

        add_flow(source, send);
        add_flow(receive, sink);
    }

    std::shared_ptr<BlockAllocator> allocator =
        std::make_shared<BlockAllocator>();

  private:
    const char *from_, *to_;
};

int count_descriptors()
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;

    while (folder != nullptr && readdir(folder) != nullptr) {
        count++;
    }
    if (folder != nullptr) {
        closedir(folder);
    }
    return count;
}

/* As Holoscan gives each operator one. */
void make_stream()
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    const auto call = [library](const char *name, auto... arguments) {
        void *found = library == nullptr ? nullptr : dlsym(library, name);

        if (found == nullptr ||
            reinterpret_cast<int (*)(decltype(arguments)...)>(found)(
                arguments...) != 0) {
            fail(name);
        }
    };
    void *context, *made;

    check(tmsg_domain_use(device));
    call("cuDevicePrimaryCtxRetain", &context, 0);
    call("cuCtxPushCurrent_v2", context);
    call("cuStreamCreate", &made, 1U);
    call("cuCtxPopCurrent_v2", &context);
    stream = {TMSG_STREAM_CUDA, reinterpret_cast<uintptr_t>(made)};
}

void run(const char *url)
{
    App app(url, url);

    app.run();
    if (device.type != TMSG_DEVICE_CPU && app.allocator->calls != FRAMES) {
        fail("the pipeline's allocator was not asked");
    }
}

/* Holoscan stops an operator that did not start. */
void refuse(const char *from, const char *to, const char *named)
{
    try {
        App(from, to).run();
    } catch (const std::exception &error) {
        if (strstr(error.what(), named) == nullptr) {
            fail(error.what());
        }
        return;
    }
    fail("it ran");
}

} // namespace

int main(int count, char **arguments)
{
    int rounds = count > 1 ? atoi(arguments[1]) : 3, descriptors = 0;
    char url[64];

    snprintf(url, sizeof(url), "unix://@tmsg-pair-%d", getpid());
    if (count > 2) {
        device.type = TMSG_DEVICE_CUDA;
        make_stream();
    }
    check(tmsg_domain_find(device, &domain));
    for (int i = 0; i < rounds; i++) {
        run(url);
        if (i == 0) {
            descriptors = count_descriptors();
        }
    }
    refuse("tcp://192.0.2.1:1", url, "192.0.2.1");
    refuse(url, "nowhere://", "nowhere");
    if (rounds > 0 && count_descriptors() != descriptors) {
        fail("descriptors were left open");
    }
    if (blocks != 0) {
        fail("memory was not given back");
    }
    printf("%d rounds of %d frames\n", rounds, static_cast<int>(FRAMES));
    return 0;
}
