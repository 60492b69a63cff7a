/* SPDX-License-Identifier: BSD-3-Clause */
#include "tensormsg_ops.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace tensormsg
{

namespace
{

constexpr int close_ms = 2000;

void check(tmsg_status_t status)
{
    if (status != TMSG_OK) {
        throw std::runtime_error(tmsg_error_message());
    }
}

/* Keys are the context's, and so of all that is on the worker. */
Owned<tmsg_worker_t> make_worker(const std::string &keys,
                                 const tmsg_worker_params_t &params)
{
    tmsg_context_params_t settings = {};
    Owned<tmsg_keyring_t> keyring;
    tmsg_context_t *context;
    tmsg_worker_t *worker;

    if (!keys.empty()) {
        tmsg_keyring_t *made;

        check(tmsg_keyring_create(&made));
        keyring.reset(made);
        check(tmsg_keyring_load(made, keys.c_str()));
        settings.field_mask = TMSG_CONTEXT_PARAM_KEYRING;
        settings.keyring = made;
    }
    check(tmsg_context_create(&settings, &context));
    Owned<tmsg_context_t> hold(context); /* the worker keeps what it needs */
    check(tmsg_worker_create(context, &params, &worker));
    return Owned<tmsg_worker_t>(worker);
}

using Shared = std::shared_ptr<holoscan::Tensor>;

void let_go(void *held) { delete static_cast<Shared *>(held); }

bool on_device(const holoscan::Tensor &tensor)
{
    return tensor.device().device_type == kDLCUDA ||
           tensor.device().device_type == kDLCUDAManaged;
}

/* The map holds the tensor until it is sent. What runs on `stream` may still
 * write it: the library waits for that, and the operator does not. */
void add(tmsg_map_t *map, const std::string &name, const Shared &tensor,
         cudaStream_t stream)
{
    tmsg_map_add_params_t params = {};
    tmsg_tensor_t described;

    check(tmsg_tensor_from_dlpack(&tensor->dl_ctx()->tensor, &described));
    auto held = std::make_unique<Shared>(tensor);
    params.field_mask = TMSG_MAP_ADD_PARAM_RELEASE;
    params.release = let_go;
    params.release_arg = held.get();
    if (on_device(*tensor)) {
        params.field_mask |= TMSG_MAP_ADD_PARAM_STREAM;
        params.stream.kind = TMSG_STREAM_CUDA;
        /* Holoscan's null is the legacy default stream: 1, as in DLPack. */
        params.stream.handle =
            stream == nullptr ? 1 : reinterpret_cast<uintptr_t>(stream);
    }
    check(tmsg_map_add(map, name.c_str(), &described, &params));
    held.release(); /* the map's now */
}

/* In the place of the library's own memory; what this cannot have, that has. */
tmsg_status_t device_alloc(void *arg, tmsg_device_t device, uint64_t bytes,
                           uint64_t alignment, tmsg_stream_t, void **data_p,
                           void **token_p)
{
    auto allocator = static_cast<holoscan::Allocator *>(arg);

    if (device.type != TMSG_DEVICE_CUDA) {
        return TMSG_ERR_UNSUPPORTED;
    }
    auto data =
        allocator->allocate(bytes, holoscan::MemoryStorageType::kDevice);
    if (data == nullptr) {
        return TMSG_ERR_UNSUPPORTED;
    }
    if (reinterpret_cast<uintptr_t>(data) % alignment != 0) {
        allocator->free(data);
        return TMSG_ERR_UNSUPPORTED;
    }
    *data_p = data;
    *token_p = nullptr;
    return TMSG_OK;
}

void device_release(void *arg, tmsg_device_t, void *data, uint64_t,
                    tmsg_stream_t, void *)
{
    static_cast<holoscan::Allocator *>(arg)->free(
        static_cast<nvidia::byte *>(data));
}

} // namespace

void SendOp::setup(holoscan::OperatorSpec &spec)
{
    spec.input<holoscan::TensorMap>("in");
    spec.param(url_, "url", "URL", "Where a ReceiveOp listens");
    spec.param(keys_, "keys", "Keys", "File of keys", std::string());
    spec.param(waiting_, "waiting", "Waiting maps",
               "How many maps may wait to be sent", 4U);
}

/* Returns at once: maps wait until the connection stands, and comes back. */
void SendOp::start()
{
    tmsg_worker_params_t params = {};
    tmsg_endpoint_params_t peer = {};

    params.field_mask = TMSG_WORKER_PARAM_FLAGS | TMSG_WORKER_PARAM_SEND_QUEUE;
    params.flags = TMSG_WORKER_THREAD;
    params.send_queue.field_mask =
        TMSG_QUEUE_PARAM_MESSAGES | TMSG_QUEUE_PARAM_POLICY;
    params.send_queue.messages = waiting_.get();
    params.send_queue.policy = TMSG_QUEUE_DROP_OLDEST;
    worker_ = make_worker(keys_.get(), params);

    peer.field_mask = TMSG_ENDPOINT_PARAM_FLAGS |
                      TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT |
                      TMSG_ENDPOINT_PARAM_RECONNECT;
    peer.flags = TMSG_ENDPOINT_WAIT;
    peer.connect_timeout_ms = -1;
    peer.reconnect.give_up_ms = -1;
    check(tmsg_endpoint_connect(worker_.get(), url_.get().c_str(), &peer,
                                &endpoint_));
}

void SendOp::compute(holoscan::InputContext &input, holoscan::OutputContext &,
                     holoscan::ExecutionContext &)
{
    auto tensors = input.receive<holoscan::TensorMap>("in");
    cudaStream_t stream = nullptr;
    tmsg_map_t *map;

    if (!tensors) {
        throw std::runtime_error(tensors.error().what());
    }
    for (const auto &[name, tensor] : tensors.value()) {
        if (on_device(*tensor)) {
            stream = input.receive_cuda_stream("in");
            break;
        }
    }
    check(tmsg_map_create(&map));
    Owned<tmsg_map_t> hold(map);
    for (const auto &[name, tensor] : tensors.value()) {
        add(map, name, tensor, stream);
    }
    check(tmsg_endpoint_send(endpoint_, map, nullptr, nullptr));
}

/* What waits to be sent goes first, if there is a peer. */
void SendOp::stop()
{
    if (endpoint_ != nullptr && tmsg_endpoint_status(endpoint_) == TMSG_OK) {
        tmsg_endpoint_close_wait(endpoint_, close_ms);
    }
    endpoint_ = nullptr;
    worker_.reset();
}

void ReceiveOp::setup(holoscan::OperatorSpec &spec)
{
    spec.output<holoscan::TensorMap>("out");
    spec.param(url_, "url", "URL", "Where to listen");
    spec.param(keys_, "keys", "Keys", "File of keys", std::string());
    spec.param(allocator_, "allocator", "Allocator",
               "Memory for tensors on the GPU",
               holoscan::ParameterFlag::kOptional);
}

void ReceiveOp::initialize()
{
    arrived_ =
        fragment()->make_condition<holoscan::AsynchronousCondition>("arrived");
    add_arg(arrived_);
    Operator::initialize();
}

void ReceiveOp::start()
{
    tmsg_worker_params_t params = {};
    tmsg_device_allocator_t own = {device_alloc, device_release, nullptr};

    if (auto &allocator = allocator_.try_get(); allocator && *allocator) {
        own.arg = allocator->get();
        params.field_mask = TMSG_WORKER_PARAM_DEVICE_ALLOCATOR;
        params.device_allocator = &own;
    }
    worker_ = make_worker(keys_.get(), params);
    check(tmsg_listener_create(worker_.get(), url_.get().c_str(), nullptr,
                               &listener_));
    wake_ = eventfd(0, EFD_CLOEXEC);
    if (wake_ < 0) {
        throw std::system_error(errno, std::generic_category(), "eventfd");
    }
    stopping_ = false;
    thread_ = std::thread([this] { receive(); });
}

/* The worker is this thread's alone from start() to stop(). */
void ReceiveOp::receive()
{
    pollfd fds[] = {{tmsg_worker_fd(worker_.get()), POLLIN, 0},
                    {wake_, POLLIN, 0}};
    tmsg_message_t *message;

    while (fds[1].revents == 0) {
        tmsg_worker_progress(worker_.get());
        while (tmsg_worker_recv(worker_.get(), 0, &message) == TMSG_OK) {
            if (!hand_over(message)) {
                return;
            }
        }
        if (tmsg_worker_arm(worker_.get()) == TMSG_OK) {
            poll(fds, 2, -1);
        }
    }
}

/* Waits until compute() has taken the message before: no more are received
 * meanwhile, and their sender waits. */
bool ReceiveOp::hand_over(tmsg_message_t *message)
{
    Owned<tmsg_message_t> next(message);
    std::unique_lock<std::mutex> lock(mutex_);

    taken_.wait(lock, [this] { return message_ == nullptr || stopping_; });
    if (stopping_) {
        return false;
    }
    message_ = std::move(next);
    arrived_->event_state(holoscan::AsynchronousEventState::EVENT_DONE);
    return true;
}

/* Called the first time before anything has arrived. */
void ReceiveOp::compute(holoscan::InputContext &,
                        holoscan::OutputContext &output,
                        holoscan::ExecutionContext &)
{
    holoscan::TensorMap tensors;
    Owned<tmsg_message_t> message;
    DLManagedTensor *managed;
    const char *name;

    {
        std::lock_guard<std::mutex> lock(mutex_);
        message = std::move(message_);
        arrived_->event_state(holoscan::AsynchronousEventState::EVENT_WAITING);
    }
    if (message == nullptr) {
        return;
    }
    taken_.notify_one();
    const tmsg_map_t *map = tmsg_message_map(message.get());
    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        check(tmsg_map_at(map, i, &name, nullptr));
        check(tmsg_map_to_dlpack(map, name, &managed));
        tensors.insert({name, std::make_shared<holoscan::Tensor>(managed)});
    }
    output.emit(tensors, "out");
    /* The tensors hold the map, which outlives its message. */
}

void ReceiveOp::stop()
{
    if (thread_.joinable()) {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            stopping_ = true;
        }
        taken_.notify_one();
        eventfd_write(wake_, 1);
        thread_.join();
    }
    if (wake_ >= 0) {
        close(wake_);
        wake_ = -1;
    }
    message_.reset();
    listener_ = nullptr;
    worker_.reset();
}

} // namespace tensormsg
