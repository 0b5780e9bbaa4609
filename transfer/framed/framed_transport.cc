#include "transfer/framed/framed_transport.h"

#include <utility>

#include "base/status.h"
#include "transfer/framed/io_loop.h"
#include "transfer/send_streams.h"

namespace tandem {
namespace {

// Stands in where a worker only sends.
class NoReceiver final : public FrameReceiver {
 public:
  absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader&) override { return Refusal(); }
  void Landed(const FrameHeader&, const absl::Status&) override {}
  CommitAnswer Commit(const FrameHeader&) override { return {.status = Refusal()}; }
  absl::Status Renewed(uint64_t, uint64_t) override { return Refusal(); }

 private:
  static absl::Status Refusal() { return FailedPrecondition("this worker receives no streams"); }
};

class FramedTransport final : public Transport {
 public:
  FramedTransport(const FramedOptions& options, LoopSockets sockets, std::unique_ptr<Medium> medium,
                  FrameReceiver* receiver)
      : medium_(std::move(medium)),
        streams_(options.max_queued_frames),
        loop_(options, std::move(sockets), *medium_, receiver != nullptr ? *receiver : no_receiver_,
              streams_, counters_) {}

  std::string address() const override { return medium_->address(); }
  absl::Status MayReach(std::string_view peer) const override { return medium_->MayReach(peer); }

  absl::Status OpenStream(std::string_view peer, uint64_t stream, uint64_t epoch,
                          Duration /*renew_every*/, StreamEnded ended) override {
    RETURN_IF_ERROR(medium_->MayReach(peer));
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

  std::vector<LinkStats> links() const override { return {}; }
  RefusedFrames refused() const override { return {}; }
  size_t buffer_bytes() const override { return medium_->buffer_bytes(); }
  uint64_t bytes_sent() const override { return counters_.sent; }
  uint64_t bytes_received() const override { return counters_.received; }

 private:
  const std::unique_ptr<Medium> medium_;
  NoReceiver no_receiver_;
  SendStreams streams_;
  TransportCounters counters_;
  IoLoop loop_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> NewFramedTransport(const FramedOptions& options,
                                                              std::unique_ptr<Medium> medium,
                                                              FrameReceiver* receiver) {
  ASSIGN_OR_RETURN(LoopSockets sockets, LoopSockets::Open());
  return std::make_unique<FramedTransport>(options, std::move(sockets), std::move(medium),
                                           receiver);
}

}  // namespace tandem
