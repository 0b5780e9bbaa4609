#include "transfer/framed/framed_transport.h"

#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "transfer/framed/direct_payloads.h"
#include "transfer/framed/io_loop.h"
#include "transfer/framed/side_channel_payloads.h"
#include "transfer/framed/staged_payloads.h"

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

FrameReceiver& OrNoReceiver(FrameReceiver* receiver) {
  static NoReceiver none;  // has no state
  return receiver != nullptr ? *receiver : none;
}

absl::StatusOr<std::unique_ptr<PayloadPath>> NewPath(const FramedOptions& options,
                                                     bool has_side_channels,
                                                     FrameReceiver* receiver) {
  if (has_side_channels) {
    TANDEM_CHECK(options.device != nullptr, "side channels lead to the memory of a device");
    return SideChannelPayloads::Create(*options.device, OrNoReceiver(receiver));
  }
  if (options.device == nullptr || options.device->is_host()) {
    return std::make_unique<DirectPayloads>();
  }
  return StagedPayloads::Create(*options.device, options.staged_payload_bytes,
                                options.staging_bytes, receiver);
}

class FramedTransport final : public Transport, private StreamOwner {
 public:
  FramedTransport(const FramedOptions& options, IoLoop::Sockets sockets,
                  std::unique_ptr<Medium> medium, std::unique_ptr<PayloadPath> path,
                  FrameReceiver& receiver)
      : max_frames_(static_cast<uint64_t>(options.max_queued_frames)),
        medium_(std::move(medium)),
        path_(std::move(path)),
        links_(medium_->name()),
        loop_(options, std::move(sockets), *medium_, receiver, *path_, streams_, links_,
              counters_) {}

  std::string address() const override { return medium_->address(); }
  absl::Status MayReach(std::string_view peer) const override { return medium_->MayReach(peer); }

  absl::StatusOr<StreamHandle> OpenStream(std::string_view peer, uint64_t stream, uint64_t epoch,
                                          Duration renew_every, StreamEnded ended) override {
    RETURN_IF_ERROR(medium_->MayReach(peer));
    const StreamKey key = {.stream = stream, .epoch = epoch};
    StreamOwner& owner = *this;
    auto opened = std::make_shared<OutgoingStream>(key, max_frames_, owner, std::move(ended));
    RETURN_IF_ERROR(streams_.Add(opened));
    loop_.Queue(
        OpenCommand{.stream = opened, .peer = std::string(peer), .renew_every = renew_every});
    return opened;
  }

  std::vector<LinkStats> links() const override { return links_.stats(); }
  RefusedFrames refused() const override {
    return {.malformed = counters_.malformed,
            .corrupted = counters_.corrupted,
            .stale = counters_.stale,
            .unauthenticated = counters_.unauthenticated,
            .closed = counters_.closed};
  }
  size_t buffer_bytes() const override {
    return medium_->buffer_bytes() + kReadAheadBytes + path_->buffer_bytes();
  }
  uint64_t bytes_sent() const override { return counters_.sent; }
  uint64_t bytes_received() const override { return counters_.received; }

 private:
  absl::Status CheckPayload(uint64_t stream, std::span<const std::byte> payload) const override {
    RETURN_IF_ERROR(path_->CheckPayload(stream, payload.size()));
    return medium_->MayCarry(payload);
  }
  void Queue(StreamCommand command) override { loop_.Queue(std::move(command)); }
  bool IsLoopThread() const override { return loop_.IsLoopThread(); }
  void AbortNow(OutgoingStream& stream) override { loop_.AbortNow(stream); }

  const uint64_t max_frames_;
  const std::unique_ptr<Medium> medium_;
  const std::unique_ptr<PayloadPath> path_;
  OpenStreams streams_;
  Links links_;
  TransportCounters counters_;
  IoLoop loop_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> NewFramedTransport(const FramedOptions& options,
                                                              std::unique_ptr<Medium> medium,
                                                              FrameReceiver* receiver) {
  ASSIGN_OR_RETURN(IoLoop::Sockets sockets, IoLoop::Sockets::Open());
  ASSIGN_OR_RETURN(std::unique_ptr<PayloadPath> path,
                   NewPath(options, medium->has_side_channels(), receiver));
  return std::make_unique<FramedTransport>(options, std::move(sockets), std::move(medium),
                                           std::move(path), OrNoReceiver(receiver));
}

}  // namespace tandem
