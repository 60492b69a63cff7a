/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg-bench-grpc TRANSPORT IN_FLIGHT BLOCKS BLOCK_MS PIECES: prints how
 * many unary calls a second a gRPC client makes to a gRPC server in another
 * process, each with 512 bytes there and back, in so many pieces. TRANSPORT:
 * unix, tcp. Both sides by the asynchronous callback API; the median of the
 * blocks. */
#include <grpcpp/grpcpp.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "echo.grpc.pb.h"

namespace
{

constexpr size_t kBytes = 512;
constexpr auto kPatience = std::chrono::seconds(10);

[[noreturn]] void die(const std::string &why)
{
    fprintf(stderr, "tensormsg-bench-grpc: %s\n", why.c_str());
    _exit(1);
}

peer::Map make_map(size_t pieces)
{
    peer::Map map;

    for (size_t i = 0; i < pieces; i++) {
        map.add_tensors(
            std::string(kBytes / pieces, static_cast<char>('a' + i)));
    }
    return map;
}

class Echo final : public peer::Echo::CallbackService
{
  public:
    explicit Echo(size_t pieces) : answer_(make_map(pieces)) {}

    grpc::ServerUnaryReactor *Call(grpc::CallbackServerContext *context,
                                   const peer::Map *request,
                                   peer::Map *reply) override
    {
        grpc::ServerUnaryReactor *reactor = context->DefaultReactor();

        if (request->tensors_size() != answer_.tensors_size()) {
            die("the server got another message");
        }
        *reply = answer_;
        reactor->Finish(grpc::Status::OK);
        return reactor;
    }

  private:
    const peer::Map answer_;
};

/* The server's process, until it is killed. Its address goes into the pipe. */
[[noreturn]] void serve(std::string address, size_t pieces, int pipe)
{
    grpc::ServerBuilder builder;
    Echo service(pieces);
    int port = 0;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service);
    std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
    if (server == nullptr) {
        die("no server at " + address);
    }
    if (address.rfind("unix:", 0) != 0) {
        address = "127.0.0.1:" + std::to_string(port);
    }
    if (write(pipe, address.c_str(), address.size() + 1) < 0) {
        die("the client is gone");
    }
    server->Wait();
    _exit(0);
}

/* So many calls at once, each of which begins the next when it is answered. */
class Client
{
  public:
    Client(const std::string &address, size_t in_flight, size_t pieces)
        : channel_(grpc::CreateChannel(address,
                                       grpc::InsecureChannelCredentials())),
          stub_(peer::Echo::NewStub(channel_)), request_(make_map(pieces)),
          places_(in_flight)
    {
        if (!channel_->WaitForConnected(std::chrono::system_clock::now() +
                                        kPatience)) {
            die("no connection to " + address);
        }
        for (Place &place : places_) {
            begin(place);
        }
    }

    uint64_t done() const { return done_; }

    void finish()
    {
        stopping_ = true;
        while (ended_ < places_.size()) {
            std::this_thread::yield();
        }
    }

  private:
    struct Place {
        std::unique_ptr<grpc::ClientContext> context;
        peer::Map reply;
    };

    void begin(Place &place)
    {
        place.context = std::make_unique<grpc::ClientContext>();
        stub_->async()->Call(
            place.context.get(), &request_, &place.reply,
            [this, &place](const grpc::Status &status) { end(place, status); });
    }

    void end(Place &place, const grpc::Status &status)
    {
        if (!status.ok()) {
            die(status.error_message());
        }
        if (place.reply.tensors(0) != request_.tensors(0)) {
            die("the client got another message");
        }
        done_.fetch_add(1, std::memory_order_relaxed);
        if (stopping_) {
            ended_++;
        } else {
            begin(place);
        }
    }

    const std::shared_ptr<grpc::Channel> channel_;
    const std::unique_ptr<peer::Echo::Stub> stub_;
    const peer::Map request_;
    std::vector<Place> places_;
    std::atomic<uint64_t> done_{0};
    std::atomic<size_t> ended_{0};
    std::atomic<bool> stopping_{false};
};

/* Calls a second in a block of that length. */
double rate(const Client &client, std::chrono::milliseconds length)
{
    const auto begin = std::chrono::steady_clock::now();
    const uint64_t before = client.done();

    std::this_thread::sleep_for(length);
    const std::chrono::duration<double> took =
        std::chrono::steady_clock::now() - begin;
    return static_cast<double>(client.done() - before) / took.count();
}

double measure(Client &client, size_t blocks, std::chrono::milliseconds length)
{
    std::vector<double> rates;

    for (size_t i = 0; i < blocks / 4 + 1; i++) { /* warm-up */
        rate(client, length);
    }
    for (size_t i = 0; i < blocks; i++) {
        rates.push_back(rate(client, length));
    }
    std::sort(rates.begin(), rates.end());
    return (rates[(blocks - 1) / 2] + rates[blocks / 2]) / 2;
}

} // namespace

int main(int argc, char **argv)
{
    char folder[] = "/tmp/tensormsg-bench-XXXXXX", address[128];
    int ends[2];

    if (argc != 6 || mkdtemp(folder) == nullptr || pipe(ends) != 0) {
        die("needs TRANSPORT IN_FLIGHT BLOCKS BLOCK_MS PIECES");
    }
    const size_t in_flight = strtoul(argv[2], nullptr, 10);
    const size_t blocks = strtoul(argv[3], nullptr, 10);
    const std::chrono::milliseconds length(strtoul(argv[4], nullptr, 10));
    const size_t pieces = strtoul(argv[5], nullptr, 10);
    const std::string path = std::string(folder) + "/socket";
    const pid_t child = fork(); /* before gRPC is touched */

    if (child == 0) {
        serve(argv[1] == std::string("unix") ? "unix:" + path : "127.0.0.1:0",
              pieces, ends[1]);
    }
    close(ends[1]);
    if (read(ends[0], address, sizeof(address)) <= 0) {
        die("the server is gone");
    }
    {
        Client client(address, in_flight, pieces);

        printf("%.1f\n", measure(client, blocks, length));
        client.finish();
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    unlink(path.c_str());
    rmdir(folder);
    return 0;
}
