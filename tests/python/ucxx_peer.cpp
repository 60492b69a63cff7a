/* SPDX-License-Identifier: BSD-3-Clause */
/* A program on UCXX's C++ interface, for what its Python one cannot: user
 * headers, scatter lists, policies. It dials a port of 127.0.0.1, or with
 * "listen" prints one and takes a peer there; then it does what stdin says,
 * and a line on stdout answers each:
 *
 *   send POLICY SEGMENTS BYTES HEADER   sends 0, 1, 2, ... as so many pieces;
 *                                       "sent", or why not
 *   recv                                "BYTES HEADER DATA" of what has come;
 *                                       DATA is "counted" for 0, 1, 2, ...
 *   raw HEADER BYTES                    an active message with any header
 *
 * HEADER and DATA are in hex, "-" for none. */
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <ucxx/api.h>

static const auto patience = std::chrono::seconds(20);

static std::vector<char> from_hex(const std::string &hex)
{
    std::vector<char> bytes;

    for (size_t i = 0; hex != "-" && i + 1 < hex.size(); i += 2) {
        bytes.push_back((char)std::stoi(hex.substr(i, 2), nullptr, 16));
    }
    return bytes;
}

static std::string to_hex(const std::string &bytes)
{
    static const char digits[] = "0123456789abcdef";
    std::string hex;

    for (unsigned char byte : bytes) {
        hex += {digits[byte >> 4], digits[byte & 15]};
    }
    return hex.empty() ? "-" : hex;
}

class Peer
{
  public:
    Peer()
        : context(ucxx::contextBuilder(ucxx::Context::defaultFeatureFlags)
                      .build()),
          worker(context->workerBuilder().build())
    {
    }

    /* Once there is something to read, or the end. */
    void await_words()
    {
        struct pollfd words = {STDIN_FILENO, POLLIN, 0};

        while (poll(&words, 1, 0) == 0) {
            worker->progress();
        }
    }

    void dial(uint16_t port)
    {
        endpoint = worker->endpointBuilder("127.0.0.1", port).build();
    }

    void listen()
    {
        listener = worker->listenerBuilder(0, came, this).build();
        std::cout << listener->getPort() << std::endl;
        until([this] { return request != nullptr; });
        endpoint = listener->endpointBuilder(request).build();
    }

    std::string send(int policy, size_t pieces, size_t bytes,
                     const std::string &header)
    {
        std::vector<char> data(bytes), user = from_hex(header);
        std::vector<ucp_dt_iov_t> iov;
        ucxx::AmSendParams params;
        std::shared_ptr<ucxx::Request> sent;

        for (size_t i = 0; i < bytes; i++) {
            data[i] = (char)i;
        }
        params.memoryTypePolicy =
            policy == 0 ? ucxx::AmSendMemoryTypePolicy::FallbackToHost
                        : ucxx::AmSendMemoryTypePolicy::ErrorOnUnsupported;
        params.setUserHeader(user.data(), user.size());
        if (pieces < 2) {
            sent = endpoint->amSendBuilder(data.data(), bytes, params).build();
        } else {
            for (size_t i = 0; i < pieces; i++) {
                size_t from = bytes * i / pieces;

                iov.push_back({&data[from], bytes * (i + 1) / pieces - from});
            }
            params.datatype = UCP_DATATYPE_IOV;
            sent = endpoint->amSendBuilder(iov, params).build();
        }
        until([&] { return sent->isCompleted(); });
        return sent->getStatus() == UCS_OK ? "sent"
                                           : ucs_status_string(sent->getStatus());
    }

    std::string raw(const std::string &header, size_t bytes)
    {
        std::vector<char> head = from_hex(header), data(bytes);
        ucp_request_param_t param = {};
        ucs_status_t status;
        void *sent;

        param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        param.flags = UCP_AM_SEND_FLAG_REPLY;
        sent = ucp_am_send_nbx(endpoint->getHandle(), 0, head.data(),
                               head.size(), data.data(), bytes, &param);
        if (!UCS_PTR_IS_PTR(sent)) {
            status = UCS_PTR_STATUS(sent);
        } else {
            until([&] {
                return ucp_request_check_status(sent) != UCS_INPROGRESS;
            });
            status = ucp_request_check_status(sent);
            ucp_request_free(sent);
        }
        return status == UCS_OK ? "sent" : ucs_status_string(status);
    }

    std::string recv()
    {
        auto received = endpoint->amRecvBuilder().build();
        std::shared_ptr<ucxx::Buffer> buffer;
        std::ostringstream words;
        bool counted = true;
        std::string data;

        until([&] { return received->isCompleted(); });
        received->checkError();
        buffer = received->getRecvBuffer();
        data.assign((const char *)buffer->data(), buffer->getSize());
        for (size_t i = 0; i < data.size(); i++) {
            counted = counted && data[i] == (char)i;
        }
        words << data.size() << " " << to_hex(received->getRecvHeader()) << " "
              << (counted ? "counted" : to_hex(data));
        return words.str();
    }

  private:
    template <class Done> void until(Done done)
    {
        auto end = std::chrono::steady_clock::now() + patience;

        while (!done()) {
            worker->progress();
            if (std::chrono::steady_clock::now() > end) {
                throw std::runtime_error("nothing happens");
            }
        }
    }

    static void came(ucp_conn_request_h request, void *arg)
    {
        ((Peer *)arg)->request = request;
    }

    std::shared_ptr<ucxx::Context> context;
    std::shared_ptr<ucxx::Worker> worker;
    std::shared_ptr<ucxx::Listener> listener;
    std::shared_ptr<ucxx::Endpoint> endpoint;
    ucp_conn_request_h request = nullptr;
};

static std::string obey(Peer &peer, const std::string &line)
{
    std::istringstream words(line);
    std::string verb, header;
    size_t pieces, bytes;
    int policy;

    words >> verb;
    if (verb == "recv") {
        return peer.recv();
    }
    if (verb == "raw" && words >> header >> bytes) {
        return peer.raw(header, bytes);
    }
    if (verb == "send" && words >> policy >> pieces >> bytes >> header) {
        return peer.send(policy, pieces, bytes, header);
    }
    throw std::runtime_error("what is '" + line + "'?");
}

int main(int argc, char **argv)
{
    std::string line, port = argc == 2 ? argv[1] : "";

    alarm(120);
    try {
        Peer peer;

        if (port == "listen") {
            peer.listen();
        } else {
            peer.dial((uint16_t)std::stoi(port));
        }
        for (;;) {
            peer.await_words();
            if (!std::getline(std::cin, line)) {
                break;
            }
            std::cout << obey(peer, line) << std::endl;
        }
    } catch (const std::exception &error) {
        std::cerr << "ucxx_peer: " << error.what() << std::endl;
        return 1;
    }
    return 0;
}
