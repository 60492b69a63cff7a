/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg_ops.hpp - two operators for Holoscan 2.8 and later: SendOp sends
 * each TensorMap that it gets to another process, ReceiveOp emits each that
 * arrives. docs/how-to/gstreamer-holoscan.md tells more. */
#ifndef TENSORMSG_OPS_HPP
#define TENSORMSG_OPS_HPP

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include <holoscan/holoscan.hpp>
#include <tensormsg/tensormsg.h>

namespace tensormsg
{

struct Destroy {
    void operator()(tmsg_context_t *context) const
    {
        tmsg_context_destroy(context);
    }
    void operator()(tmsg_keyring_t *keyring) const
    {
        tmsg_keyring_destroy(keyring);
    }
    void operator()(tmsg_map_t *map) const { tmsg_map_destroy(map); }
    void operator()(tmsg_message_t *message) const
    {
        tmsg_message_destroy(message);
    }
    void operator()(tmsg_worker_t *worker) const
    {
        tmsg_worker_destroy(worker);
    }
};

template <typename T> using Owned = std::unique_ptr<T, Destroy>;

/* Parameters: `url` of the listener, as tmsg_endpoint_connect() takes it;
 * `keys`, a file of keys, or "" for none; `waiting`, how many maps may wait to
 * be sent: one more takes the place of the oldest. Input: "in", a TensorMap. */
class SendOp : public holoscan::Operator
{
  public:
    HOLOSCAN_OPERATOR_FORWARD_ARGS(SendOp)
    SendOp() = default;

    void setup(holoscan::OperatorSpec &spec) override;
    void start() override;
    void compute(holoscan::InputContext &input, holoscan::OutputContext &output,
                 holoscan::ExecutionContext &context) override;
    void stop() override;

  private:
    holoscan::Parameter<std::string> url_;
    holoscan::Parameter<std::string> keys_;
    holoscan::Parameter<uint32_t> waiting_;
    Owned<tmsg_worker_t> worker_;
    tmsg_endpoint_t *endpoint_ = nullptr; /* the worker frees it */
};

/* Parameters: `url` to listen at, as tmsg_listener_create() takes it; `keys`;
 * `allocator`, an Allocator for tensors on the GPU, without which the library
 * allocates them. Output: "out", a TensorMap. */
class ReceiveOp : public holoscan::Operator
{
  public:
    HOLOSCAN_OPERATOR_FORWARD_ARGS(ReceiveOp)
    ReceiveOp() = default;

    void setup(holoscan::OperatorSpec &spec) override;
    void initialize() override;
    void start() override;
    void compute(holoscan::InputContext &input, holoscan::OutputContext &output,
                 holoscan::ExecutionContext &context) override;
    void stop() override;

    /* Where it listens, for senders, from start() to stop(). */
    std::string bound_url() const { return tmsg_listener_url(listener_); }

  private:
    void receive();
    bool hand_over(tmsg_message_t *message);

    holoscan::Parameter<std::string> url_;
    holoscan::Parameter<std::string> keys_;
    holoscan::Parameter<std::shared_ptr<holoscan::Allocator>> allocator_;
    std::shared_ptr<holoscan::AsynchronousCondition> arrived_;
    Owned<tmsg_worker_t> worker_;
    tmsg_listener_t *listener_ = nullptr; /* the worker frees it */
    std::thread thread_;
    int wake_ = -1; /* readable when the thread is to end */

    std::mutex mutex_; /* of what follows */
    std::condition_variable taken_;
    Owned<tmsg_message_t> message_; /* the next to be emitted */
    bool stopping_ = false;
};

} // namespace tensormsg

#endif
