#include "transfer/tcp/tcp_transport.h"

#include <utility>

#include "base/status.h"
#include "transfer/send_streams.h"
#include "transfer/tcp/io_loop.h"

namespace tandem {
namespace {

// Stands in where a worker only sends.
class NoReceiver final : public FrameReceiver {
 public:
  absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader&) override { return Refusal(); }
  void Landed(const FrameHeader&, const absl::Status&) override {}
  absl::Status Commit(const FrameHeader&) override { return Refusal(); }

 private:
  static absl::Status Refusal() { return FailedPrecondition("this worker receives no streams"); }
};

class TcpTransport final : public Transport {
 public:
  TcpTransport(const TcpOptions& options, LoopSockets sockets, FrameReceiver* receiver)
      : address_(AddressOf(options, LocalPort(sockets.listener))),
        streams_(options.max_queued_frames),
        loop_(options, std::move(sockets), receiver != nullptr ? *receiver : no_receiver_, streams_,
              counters_) {}

  std::string address() const override { return address_; }

  absl::Status OpenStream(std::string_view peer, uint64_t stream, uint64_t epoch,
                          StreamEnded ended) override {
    RETURN_IF_ERROR(ParseHostPort(peer).status());
    const StreamKey key = {.stream = stream, .epoch = epoch};
    ASSIGN_OR_RETURN(const uint64_t serial, streams_.Open(key, std::move(ended)));
    loop_.Post(OpenCommand{.key = key, .serial = serial, .peer = std::string(peer)});
    return absl::OkStatus();
  }

  absl::Status Post(uint64_t stream, uint64_t epoch, uint32_t layer, uint32_t block,
                    std::span<const std::byte> payload) override {
    ASSIGN_OR_RETURN(const auto serial,
                     streams_.Admit({.stream = stream, .epoch = epoch}, payload.size()));
    if (!serial) return absl::OkStatus();
    const FrameHeader header = {.type = FrameType::kData,
                                .stream = stream,
                                .epoch = epoch,
                                .layer = layer,
                                .block = block,
                                .payload_bytes = static_cast<uint32_t>(payload.size())};
    loop_.Post(FrameCommand{.serial = *serial, .frame = {.header = header, .payload = payload}});
    return absl::OkStatus();
  }

  absl::Status FinishStream(uint64_t stream, uint64_t epoch) override {
    ASSIGN_OR_RETURN(const auto commit, streams_.Finish({.stream = stream, .epoch = epoch}));
    if (!commit) return absl::OkStatus();
    const FrameHeader header = {
        .type = FrameType::kCommit, .stream = stream, .epoch = epoch, .frames = commit->frames};
    loop_.Post(FrameCommand{.serial = commit->serial, .frame = {.header = header}});
    return absl::OkStatus();
  }

  void AbortStream(uint64_t stream, uint64_t epoch) override {
    const StreamKey key = {.stream = stream, .epoch = epoch};
    // Not found: it ended, and what ends a stream lets go of its payloads first.
    if (const auto serial = streams_.Find(key)) loop_.Abort(key, *serial);
  }

  uint64_t bytes_sent() const override { return counters_.sent; }
  uint64_t bytes_received() const override { return counters_.received; }

 private:
  static std::string AddressOf(const TcpOptions& options, uint16_t port) {
    const std::string& host =
        options.advertised_host.empty() ? options.listen_host : options.advertised_host;
    const bool is_v6 = host.find(':') != std::string::npos;
    return is_v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
  }

  const std::string address_;
  NoReceiver no_receiver_;
  SendStreams streams_;
  TransportCounters counters_;
  IoLoop loop_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> OpenTcpTransport(const TcpOptions& options,
                                                            FrameReceiver* receiver) {
  ASSIGN_OR_RETURN(UniqueFd listener, Listen(options.listen_host, options.listen_port));
  ASSIGN_OR_RETURN(LoopSockets sockets, LoopSockets::Open(std::move(listener)));
  return std::make_unique<TcpTransport>(options, std::move(sockets), receiver);
}

}  // namespace tandem
