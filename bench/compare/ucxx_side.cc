/* SPDX-License-Identifier: BSD-3-Clause */
/* Maps as active messages of UCXX's C++ library: one scatter list of the
 * pieces, with the head as user header where that is short enough (its header
 * recommends less than 4 KiB), else as first piece. */
#include <ucxx/api.h>
#include <ucxx/buffer.h>

#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

extern "C" {
#include "way.h"
}

namespace
{

constexpr size_t kHeaderBytes = 4000;
constexpr size_t kAddressBytes = 64 * 1024;

/* A message on its way, with the small tensors as they were. */
struct Sending {
    std::shared_ptr<ucxx::Request> request;
    std::vector<uint8_t> small;
};

/* Memory that messages are received into, used again as UCXX's allocators may
 * do. */
class Pool : public std::enable_shared_from_this<Pool>
{
  public:
    std::shared_ptr<ucxx::Buffer> take(size_t bytes)
    {
        for (auto it = free_.begin(); it != free_.end(); ++it) {
            if ((*it)->getSize() == bytes) {
                auto found = std::move(*it);
                free_.erase(it);
                return lend(std::move(found));
            }
        }
        return lend(std::make_unique<ucxx::HostBuffer>(bytes));
    }

  private:
    std::shared_ptr<ucxx::Buffer> lend(std::unique_ptr<ucxx::HostBuffer> buffer)
    {
        auto pool = shared_from_this();

        return std::shared_ptr<ucxx::Buffer>(
            buffer.release(), [pool](ucxx::Buffer *back) {
                pool->free_.emplace_back(static_cast<ucxx::HostBuffer *>(back));
            });
    }

    std::vector<std::unique_ptr<ucxx::HostBuffer>> free_;
};

/* The side's functions get a pointer to its first member. */
struct Side {
    compare_framed_t framed{};
    std::shared_ptr<ucxx::Context> context;
    std::shared_ptr<ucxx::Worker> worker;
    std::shared_ptr<ucxx::Endpoint> endpoint;
    std::deque<Sending> sending;
    std::vector<std::vector<uint8_t>> spare;  /* of what was sent */
    std::shared_ptr<ucxx::Request> receiving; /* the next message */
    std::shared_ptr<ucxx::Buffer> arrived;    /* the last one */
};

Side *of(bench_side_t *side) { return reinterpret_cast<Side *>(side); }

void send_pieces(Side *self, std::vector<ucp_dt_iov_t> iov,
                 const framing_piece_t *head, std::vector<uint8_t> small)
{
    ucxx::AmSendParams params;

    params.datatype = UCP_DATATYPE_IOV;
    if (head != nullptr) {
        params.setUserHeader(head->data, head->bytes);
    }
    self->sending.push_back(
        {self->endpoint->amSendBuilder(std::move(iov), params).build(),
         std::move(small)});
    self->framed.side.in_flight++;
}

void send_payload(bench_side_t *side)
{
    Side *self = of(side);
    const framing_out_t *out = compare_framed_next(&self->framed);
    const framing_piece_t *head = &out->head;
    bool fits = head->bytes <= kHeaderBytes;
    std::vector<ucp_dt_iov_t> iov;
    std::vector<uint8_t> small;

    if (!self->spare.empty()) {
        small = std::move(self->spare.back());
        self->spare.pop_back();
    }
    small.resize(out->small_bytes);
    framing_gather(out, small.data());
    iov.reserve(out->large_count + 2);
    if (!fits) {
        iov.push_back({head->data, head->bytes});
    }
    if (!small.empty()) {
        iov.push_back({small.data(), small.size()});
    }
    for (size_t i = 0; i < out->large_count; i++) {
        iov.push_back({out->large[i].data, out->large[i].bytes});
    }
    send_pieces(self, std::move(iov), fits ? head : nullptr, std::move(small));
}

/* A list of one empty piece, and no header. */
void send_answer(bench_side_t *side)
{
    send_pieces(of(side), {{nullptr, 0}}, nullptr, {});
}

/* Where the head came as first piece, it says itself how long it is. */
void take(Side *self, const std::string &header, const uint8_t *data,
          size_t bytes)
{
    framing_in_t *in = &self->framed.in;
    const uint8_t *end = data + bytes;
    size_t next = 0;

    if (header.empty()) {
        data += framing_read(in, data, bytes);
    } else {
        framing_read(in, header.data(), header.size());
    }
    framing_place_small(in, data);
    data += in->small_bytes;
    while (data < end) {
        framing_place_large(in, &next, data);
        data += in->tensors[next - 1].bytes;
    }
}

void receive(Side *self)
{
    self->receiving->checkError();
    self->arrived = self->receiving->getRecvBuffer();
    const std::string header = self->receiving->getRecvHeader();
    size_t bytes = self->arrived == nullptr ? 0 : self->arrived->getSize();

    self->receiving = self->endpoint->amRecvBuilder().build();
    if (bytes == 0) {
        compare_framed_answered(&self->framed);
        return;
    }
    take(self, header, static_cast<const uint8_t *>(self->arrived->data()),
         bytes);
    compare_framed_arrived(&self->framed);
}

void progress(bench_side_t *side)
{
    Side *self = of(side);

    self->worker->progress();
    while (!self->sending.empty() &&
           self->sending.front().request->isCompleted()) {
        self->sending.front().request->checkError();
        self->spare.push_back(std::move(self->sending.front().small));
        self->sending.pop_front();
        side->in_flight--;
    }
    if (self->receiving->isCompleted()) {
        receive(self);
    }
}

/* The process ends with it: no orderly end of the connection is waited for. */
void close_side(bench_side_t *) {}

void connect(Side *self, int socket)
{
    auto address = self->worker->addressBuilder().build();
    std::string peer(kAddressBytes, '\0');

    bench_tell(socket, address->getStringView().data(), address->getLength());
    peer.resize(bench_hear(socket, peer.data(), peer.size()));
    self->endpoint =
        ucxx::endpointBuilder(self->worker, ucxx::AddressBuilder(peer).build())
            .endpointErrorHandling(false)
            .build();
}

} // namespace

extern "C" bench_side_t *compare_ucxx_open(const bench_run_t *run, bool,
                                           int socket)
{
    Side *self = new Side; /* for the rest of the process */
    auto pool = std::make_shared<Pool>();

    self->framed.side.send = send_payload;
    self->framed.side.answer = send_answer;
    self->framed.side.progress = progress;
    self->framed.side.close = close_side;
    compare_framed_load(&self->framed, run);
    self->context =
        ucxx::contextBuilder(UCP_FEATURE_AM)
            .configMap({{"TLS", run->transport == BENCH_TCP ? "tcp"
                                                            : "posix,cma,self"},
                        {"TCP_TX_SEG_SIZE", "60k"}, /* a scatter list wants */
                        {"TCP_RX_SEG_SIZE", "64k"}})
            .build();
    self->worker = ucxx::workerBuilder(self->context).build();
    self->worker->registerAmAllocator(
        UCS_MEMORY_TYPE_HOST,
        [pool](size_t bytes) { return pool->take(bytes); });
    connect(self, socket);
    self->receiving = self->endpoint->amRecvBuilder().build();
    return &self->framed.side;
}

extern "C" const char *compare_ucxx_version(void) { return COMPARE_UCXX; }
