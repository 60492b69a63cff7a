/* SPDX-License-Identifier: BSD-3-Clause */
/* Maps as messages of one bidirectional stream of gRPC's, with the tensors as
 * fields of bytes: the only side that is C++. */
#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "map.grpc.pb.h"

extern "C" {
#include <tensormsg/dtype.h>

#include "way.h"
}

namespace
{

constexpr size_t kNameBytes = TMSG_DTYPE_NAME_MAX;

/* Either end of the stream. */
class Stream
{
  public:
    virtual ~Stream() = default;
    virtual bool write(const compare::Map &map) = 0;
    virtual bool read(compare::Map *map) = 0;
};

template <typename Ends> class StreamOf final : public Stream
{
  public:
    explicit StreamOf(Ends *ends) : ends_(ends) {}
    bool write(const compare::Map &map) override { return ends_->Write(map); }
    bool read(compare::Map *map) override { return ends_->Read(map); }

  private:
    Ends *ends_;
};

using ServerEnds = grpc::ServerReaderWriter<compare::Map, compare::Map>;
using ClientEnds = grpc::ClientReaderWriter<compare::Map, compare::Map>;

/* Lends the stream of the one call to the thread that plays. */
class Service final : public compare::Exchange::Service
{
  public:
    grpc::Status Maps(grpc::ServerContext *, ServerEnds *ends) override
    {
        std::unique_lock<std::mutex> lock(mutex_);

        stream_ = std::make_unique<StreamOf<ServerEnds>>(ends);
        changed_.notify_all();
        changed_.wait(lock, [this] { return over_; });
        return grpc::Status::OK;
    }

    Stream *wait()
    {
        std::unique_lock<std::mutex> lock(mutex_);

        changed_.wait(lock, [this] { return stream_ != nullptr; });
        return stream_.get();
    }

    void end()
    {
        const std::lock_guard<std::mutex> lock(mutex_);

        over_ = true;
        changed_.notify_all();
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::unique_ptr<Stream> stream_;
    bool over_ = false;
};

/* The side's functions get a pointer to its first member. */
struct Side {
    bench_side_t side{};
    std::vector<compare::Map> maps; /* of each payload */
    compare::Map arrived;
    Service service;
    std::unique_ptr<grpc::Server> server;
    std::unique_ptr<compare::Exchange::Stub> stub;
    grpc::ClientContext context;
    std::unique_ptr<ClientEnds> ends;
    std::unique_ptr<Stream> dialled;
    Stream *stream = nullptr;
};

Side *of(bench_side_t *side) { return reinterpret_cast<Side *>(side); }

/* All but the data. */
compare::Map describe(const workload_map_t &wanted)
{
    compare::Map map;

    for (size_t i = 0; i < wanted.count; i++) {
        const workload_tensor_t &like = wanted.tensors[i];
        compare::Tensor *tensor = map.add_tensors();
        char name[kNameBytes];

        tensor->set_name(like.name);
        tensor->set_dtype(tmsg_dtype_format(like.dtype, name, sizeof(name)));
        for (int axis = 0; axis < like.ndim; axis++) {
            tensor->add_shape(like.shape[axis]);
        }
    }
    for (size_t i = 0; i < wanted.meta_count; i++) {
        const workload_meta_t &meta = wanted.meta[i];
        compare::Value &value = (*map.mutable_meta())[meta.name];

        if (meta.text != nullptr) {
            value.set_text(meta.text);
        } else if (meta.is_whole) {
            value.set_whole(static_cast<int64_t>(meta.number));
        } else {
            value.set_number(meta.number);
        }
    }
    return map;
}

/* protobuf has bytes of its own: the tensors are copied for every message. */
void send_payload(bench_side_t *side)
{
    compare::Map &map = of(side)->maps[side->turn];
    const bench_payload_t *payload = bench_side_next(side);

    for (size_t i = 0; i < payload->map->count; i++) {
        map.mutable_tensors(static_cast<int>(i))
            ->set_data(payload->data[i], payload->map->tensors[i].bytes);
    }
    if (!of(side)->stream->write(map)) {
        bench_die("gRPC: the stream is over");
    }
}

void send_answer(bench_side_t *side)
{
    if (!of(side)->stream->write(compare::Map())) {
        bench_die("gRPC: the stream is over");
    }
}

void check(const bench_payload_t *payload, const compare::Map &map)
{
    if (static_cast<size_t>(map.tensors_size()) != payload->map->count) {
        bench_die("gRPC: another number of tensors");
    }
    for (size_t i = 0; i < payload->map->count; i++) {
        const compare::Tensor &tensor = map.tensors(static_cast<int>(i));
        tmsg_dtype_t dtype;

        if (tmsg_dtype_parse(tensor.dtype().c_str(), &dtype) != TMSG_OK ||
            tensor.data().size() != payload->map->tensors[i].bytes) {
            bench_die("gRPC: another tensor");
        }
        bench_payload_is(payload, i, tensor.name().data(), tensor.name().size(),
                         dtype, tensor.shape_size(), tensor.shape().data());
        bench_payload_check(payload, i, tensor.data().data());
    }
}

void progress(bench_side_t *side)
{
    Side *self = of(side);

    if (!self->stream->read(&self->arrived)) {
        bench_die("gRPC: the stream is over");
    }
    if (side->check && self->arrived.tensors_size() > 0) {
        check(bench_side_expected(side), self->arrived);
        side->checked++;
    }
    side->received++;
}

/* The process ends with it: no orderly end of the stream is waited for. */
void close_side(bench_side_t *side)
{
    of(side)->service.end();
    bench_side_unload(side);
}

std::string content(const char *path)
{
    std::ifstream file(path);

    return {std::istreambuf_iterator<char>(file), {}};
}

std::shared_ptr<grpc::ServerCredentials> server_credentials(
    const bench_run_t *run)
{
    grpc::SslServerCredentialsOptions options(
        GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    bench_certificates_t paths;

    if (!run->encrypted) {
        return grpc::InsecureServerCredentials();
    }
    bench_certificates(run->folder, false, &paths);
    options.pem_root_certs = content(paths.ca);
    options.pem_key_cert_pairs.push_back(
        {content(paths.key), content(paths.certificate)});
    return grpc::SslServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> channel_credentials(
    const bench_run_t *run)
{
    bench_certificates_t paths;

    if (!run->encrypted) {
        return grpc::InsecureChannelCredentials();
    }
    bench_certificates(run->folder, true, &paths);
    return grpc::SslCredentials({content(paths.ca), content(paths.key),
                                 content(paths.certificate)});
}

void serve(Side *self, const bench_run_t *run, int socket)
{
    std::string place = run->transport == BENCH_SHM
                            ? "unix:" + std::string(run->folder) + "/socket"
                            : "127.0.0.1:0";
    grpc::ServerBuilder builder;
    int port = 0;

    builder.SetMaxReceiveMessageSize(-1);
    builder.AddListeningPort(place, server_credentials(run), &port);
    builder.RegisterService(&self->service);
    self->server = builder.BuildAndStart();
    if (self->server == nullptr) {
        bench_die("gRPC: no server at %s", place.c_str());
    }
    if (run->transport == BENCH_TCP) {
        place = "127.0.0.1:" + std::to_string(port);
    }
    bench_tell(socket, place.data(), place.size());
    self->stream = self->service.wait();
}

void dial(Side *self, const bench_run_t *run, int socket)
{
    char place[256] = "";
    grpc::ChannelArguments arguments;

    bench_hear(socket, place, sizeof(place) - 1);
    arguments.SetMaxReceiveMessageSize(-1);
    self->stub = compare::Exchange::NewStub(grpc::CreateCustomChannel(
        place, channel_credentials(run), arguments));
    self->ends = self->stub->Maps(&self->context);
    self->dialled = std::make_unique<StreamOf<ClientEnds>>(self->ends.get());
    self->stream = self->dialled.get();
}

} // namespace

extern "C" bench_side_t *compare_grpc_open(const bench_run_t *run,
                                           bool dialling, int socket)
{
    Side *self = new Side; /* for the rest of the process */

    self->side.send = send_payload;
    self->side.answer = send_answer;
    self->side.progress = progress;
    self->side.close = close_side;
    bench_side_load(&self->side, run, false);
    for (size_t i = 0; i < self->side.payload_count; i++) {
        self->maps.push_back(describe(*self->side.payloads[i].map));
    }
    if (dialling) {
        dial(self, run, socket);
    } else {
        serve(self, run, socket);
    }
    return &self->side;
}

extern "C" const char *compare_grpc_version(void)
{
    static const std::string text = grpc::Version();

    return text.c_str();
}
