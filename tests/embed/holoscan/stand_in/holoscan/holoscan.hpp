/* SPDX-License-Identifier: BSD-3-Clause */
/* holoscan.hpp - in the place of Holoscan's: as much of its classes as
 * examples/embed/holoscan and the test beside it use, with the names and
 * signatures of Holoscan 3.10, and a scheduler of one thread. Written for this
 * test; Holoscan itself is neither needed nor contained. */
#ifndef STAND_IN_HOLOSCAN_HPP
#define STAND_IN_HOLOSCAN_HPP

#include <any>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <dlpack/dlpack.h>

extern "C" {
typedef struct CUstream_st *cudaStream_t;
}

namespace nvidia
{
enum class byte : unsigned char {};

namespace gxf
{
struct DLManagedTensorContext {
    DLManagedTensor tensor;
    std::shared_ptr<void> memory_ref;
};
} // namespace gxf
} // namespace nvidia

namespace holoscan
{

class Fragment;

using RuntimeError = std::runtime_error;

template <typename T, typename E> class expected
{
  public:
    expected(T value) : either_(std::move(value)) {}
    expected(E error) : either_(std::move(error)) {}
    explicit operator bool() const { return either_.index() == 0; }
    T &value() { return std::get<0>(either_); }
    const E &error() const { return std::get<1>(either_); }

  private:
    std::variant<T, E> either_;
};

class Tensor
{
  public:
    explicit Tensor(DLManagedTensor *managed)
        : context_(std::make_shared<nvidia::gxf::DLManagedTensorContext>())
    {
        context_->tensor = *managed;
        context_->memory_ref = std::shared_ptr<void>(managed, [](void *held) {
            auto own = static_cast<DLManagedTensor *>(held);
            own->deleter(own);
        });
    }
    void *data() const { return context_->tensor.dl_tensor.data; }
    DLDevice device() const { return context_->tensor.dl_tensor.device; }
    std::shared_ptr<nvidia::gxf::DLManagedTensorContext> &dl_ctx()
    {
        return context_;
    }

  private:
    std::shared_ptr<nvidia::gxf::DLManagedTensorContext> context_;
};

class TensorMap
    : public std::unordered_map<std::string, std::shared_ptr<Tensor>>
{
};

enum struct MemoryStorageType { kHost = 0, kDevice = 1, kSystem = 2 };

class Resource
{
  public:
    virtual ~Resource() = default;
};

class Allocator : public Resource
{
  public:
    virtual nvidia::byte *allocate(uint64_t size, MemoryStorageType type) = 0;
    virtual void free(nvidia::byte *pointer) = 0;
};

/* What wakes the scheduler. */
struct Bell {
    std::mutex mutex;
    std::condition_variable rung;
};

class Condition
{
  public:
    virtual ~Condition() = default;
    virtual bool is_ready() = 0;
    virtual void executed() {}
    std::shared_ptr<Bell> bell;
};

enum class AsynchronousEventState {
    READY = 0,
    WAIT,
    EVENT_WAITING,
    EVENT_DONE,
    EVENT_NEVER
};

/* Its states change as GXF's do. */
class AsynchronousCondition : public Condition
{
  public:
    void event_state(AsynchronousEventState state)
    {
        std::lock_guard<std::mutex> lock(bell->mutex);
        state_ = state;
        bell->rung.notify_one();
    }
    bool is_ready() override
    {
        return state_ == AsynchronousEventState::READY ||
               state_ == AsynchronousEventState::EVENT_DONE;
    }
    void executed() override
    {
        if (state_ == AsynchronousEventState::EVENT_DONE) {
            state_ = AsynchronousEventState::READY;
        }
    }

  private:
    AsynchronousEventState state_ = AsynchronousEventState::READY;
};

class CountCondition : public Condition
{
  public:
    explicit CountCondition(int64_t count) : left_(count) {}
    bool is_ready() override { return left_ > 0; }
    void executed() override { left_--; }

  private:
    int64_t left_;
};

class Arg
{
  public:
    template <typename T>
    Arg(std::string name, T value) : name_(std::move(name)), value_(value)
    {
    }
    Arg(std::string name, const char *value)
        : name_(std::move(name)), value_(std::string(value))
    {
    }
    const std::string &name() const { return name_; }
    const std::any &value() const { return value_; }

  private:
    std::string name_;
    std::any value_;
};

template <typename T> class Parameter
{
  public:
    Parameter &operator=(const T &value)
    {
        value_ = value;
        return *this;
    }
    T &get() { return value_.value(); }
    std::optional<T> &try_get() { return value_; }

  private:
    std::optional<T> value_;
};

enum class ParameterFlag { kNone = 0, kOptional = 1 };

class OperatorSpec
{
  public:
    template <typename T> void input(std::string name)
    {
        inputs_.push_back(std::move(name));
    }
    template <typename T> void output(std::string name)
    {
        outputs_.push_back(std::move(name));
    }
    template <typename T>
    void param(Parameter<T> &parameter, const char *key, const char *,
               const char *, ParameterFlag = ParameterFlag::kNone)
    {
        params_[key] = [&parameter](const std::any &value) {
            parameter = std::any_cast<T>(value);
        };
    }
    template <typename T>
    void param(Parameter<T> &parameter, const char *key, const char *headline,
               const char *description, T default_value)
    {
        parameter = default_value;
        param(parameter, key, headline, description);
    }
    std::vector<std::string> &inputs() { return inputs_; }
    std::vector<std::string> &outputs() { return outputs_; }
    std::map<std::string, std::function<void(const std::any &)>> &params()
    {
        return params_;
    }

  private:
    std::vector<std::string> inputs_, outputs_;
    std::map<std::string, std::function<void(const std::any &)>> params_;
};

struct Message {
    TensorMap tensors;
    cudaStream_t stream;
};

/* A port has room for one message. */
using Port = std::shared_ptr<std::optional<Message>>;

class InputContext
{
  public:
    std::unordered_map<std::string, Port> ports;

    template <typename T> expected<T, RuntimeError> receive(const char *name)
    {
        static_assert(std::is_same_v<T, TensorMap>);
        Port port = ports.at(name);
        if (!*port) {
            return RuntimeError("nothing has come");
        }
        T tensors = std::move((*port)->tensors);
        stream_ = (*port)->stream;
        port->reset();
        return tensors;
    }
    cudaStream_t receive_cuda_stream(const char * = nullptr, bool = true,
                                     bool = false)
    {
        return stream_;
    }

  private:
    cudaStream_t stream_ = nullptr;
};

class OutputContext
{
  public:
    std::unordered_map<std::string, Port> ports;

    void set_cuda_stream(const cudaStream_t stream, const char *)
    {
        stream_ = stream;
    }
    void emit(TensorMap &data, const char *name)
    {
        *ports.at(name) = Message{std::move(data), stream_};
    }

  private:
    cudaStream_t stream_ = nullptr;
};

class ExecutionContext
{
};

#define HOLOSCAN_OPERATOR_FORWARD_ARGS(class_name)                             \
    template <typename ArgT, typename... ArgsT,                                \
              typename = std::enable_if_t<                                     \
                  !std::is_base_of_v<holoscan::Operator, std::decay_t<ArgT>>>> \
    explicit class_name(ArgT &&arg, ArgsT &&...args)                           \
        : Operator(std::forward<ArgT>(arg), std::forward<ArgsT>(args)...)      \
    {                                                                          \
    }

class Operator
{
  public:
    Operator() = default;
    template <typename... ArgsT> explicit Operator(ArgsT &&...args)
    {
        (add_arg(std::forward<ArgsT>(args)), ...);
    }
    virtual ~Operator() = default;

    virtual void setup(OperatorSpec &) {}
    virtual void initialize();
    virtual void start() {}
    virtual void compute(InputContext &, OutputContext &, ExecutionContext &) {}
    virtual void stop() {}

    void add_arg(Arg arg) { args_.push_back(std::move(arg)); }
    void add_arg(std::shared_ptr<Condition> condition)
    {
        conditions_.push_back(std::move(condition));
    }
    Fragment *fragment() { return fragment_; }

  private:
    friend class Fragment;

    Fragment *fragment_ = nullptr;
    OperatorSpec spec_;
    std::vector<Arg> args_;
    std::vector<std::shared_ptr<Condition>> conditions_;
    InputContext input_;
    OutputContext output_;
};

class Fragment
{
  public:
    virtual ~Fragment() = default;
    virtual void compose() {}

    template <typename OperatorT, typename... ArgsT>
    std::shared_ptr<OperatorT> make_operator(std::string, ArgsT &&...args)
    {
        auto op = std::make_shared<OperatorT>(std::forward<ArgsT>(args)...);
        op->fragment_ = this;
        op->setup(op->spec_);
        operators_.push_back(op);
        return op;
    }
    template <typename ConditionT, typename... ArgsT>
    std::shared_ptr<ConditionT> make_condition(std::string, ArgsT &&...args)
    {
        return std::make_shared<ConditionT>(std::forward<ArgsT>(args)...);
    }
    void add_flow(const std::shared_ptr<Operator> &from,
                  const std::shared_ptr<Operator> &to)
    {
        auto port = std::make_shared<std::optional<Message>>();
        from->output_.ports[from->spec_.outputs().at(0)] = port;
        to->input_.ports[to->spec_.inputs().at(0)] = port;
    }
    void stop_execution() { stopped_ = true; }

    void run()
    {
        compose();
        for (auto &op : operators_) {
            op->initialize();
        }
        try {
            for (auto &op : operators_) {
                op->start();
            }
            while (!stopped_) {
                step();
            }
        } catch (...) {
            stop();
            throw;
        }
        stop();
    }

  private:
    friend class Operator;

    static bool is_ready(Operator &op)
    {
        for (auto &[name, port] : op.input_.ports) {
            if (!*port) {
                return false;
            }
        }
        for (auto &[name, port] : op.output_.ports) {
            if (*port) {
                return false;
            }
        }
        for (auto &condition : op.conditions_) {
            if (!condition->is_ready()) {
                return false;
            }
        }
        return true;
    }

    /* Calls an operator that is ready, or waits until one is. */
    void step()
    {
        std::unique_lock<std::mutex> lock(bell_->mutex);
        Operator *next = nullptr;

        auto found = [this, &next] {
            for (auto &op : operators_) {
                if (next == nullptr && is_ready(*op)) {
                    next = op.get();
                }
            }
            return next != nullptr;
        };
        if (!bell_->rung.wait_for(lock, std::chrono::minutes(1), found)) {
            throw std::runtime_error("no operator was ready for a minute");
        }
        lock.unlock();
        ExecutionContext context;
        next->compute(next->input_, next->output_, context);
        lock.lock();
        for (auto &condition : next->conditions_) {
            condition->executed();
        }
    }

    void stop()
    {
        for (auto &op : operators_) {
            op->stop();
        }
    }

    std::vector<std::shared_ptr<Operator>> operators_;
    std::shared_ptr<Bell> bell_ = std::make_shared<Bell>();
    bool stopped_ = false;
};

using Application = Fragment;

inline void Operator::initialize()
{
    for (auto &condition : conditions_) {
        condition->bell = fragment_->bell_;
    }
    for (auto &arg : args_) {
        spec_.params().at(arg.name())(arg.value());
    }
}

} // namespace holoscan

#endif
