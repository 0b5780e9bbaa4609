#include "transfer/framed/framed_transport.h"

#include <utility>

#include "base/check.h"
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

// What payloads pass through on their way, and what is set aside for it.
struct Passage {
  std::unique_ptr<OutboundStaging> staged_out;
  std::unique_ptr<StagedLandings> staged_in;
  std::unique_ptr<PulledLandings> pulled_in;

  static absl::StatusOr<Passage> SetAside(const FramedOptions& options, bool has_lanes,
                                          FrameReceiver* receiver);
  PayloadWays ways() const {
    return {.staged_out = staged_out.get(),
            .in = {.staged = staged_in.get(), .pulled = pulled_in.get()}};
  }
  size_t buffer_bytes() const {
    return (staged_out != nullptr ? staged_out->pool().buffer_bytes() : 0) +
           (staged_in != nullptr ? staged_in->pool().buffer_bytes() : 0) +
           (pulled_in != nullptr ? pulled_in->buffer_bytes() : 0);
  }

 private:
  absl::Status SetStagingAside(const FramedOptions& options, FrameReceiver* receiver);
};

absl::StatusOr<Passage> Passage::SetAside(const FramedOptions& options, bool has_lanes,
                                          FrameReceiver* receiver) {
  Passage passage;
  if (!has_lanes) {
    RETURN_IF_ERROR(passage.SetStagingAside(options, receiver));
    return passage;
  }
  TANDEM_CHECK(options.device != nullptr, "lanes lead to the memory of a device");
  if (receiver == nullptr) return passage;
  ASSIGN_OR_RETURN(passage.pulled_in, PulledLandings::Create(*options.device, *receiver));
  return passage;
}

absl::Status Passage::SetStagingAside(const FramedOptions& options, FrameReceiver* receiver) {
  if (options.device == nullptr || options.device->is_host()) return absl::OkStatus();
  const auto new_pool = [&options] {
    return StagingPool::Create(*options.device, options.staged_payload_bytes,
                               options.staging_bytes);
  };
  ASSIGN_OR_RETURN(std::unique_ptr<StagingPool> outbound, new_pool());
  staged_out = std::make_unique<OutboundStaging>(std::move(outbound));
  if (receiver == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::unique_ptr<StagingPool> inbound, new_pool());
  staged_in = std::make_unique<StagedLandings>(std::move(inbound), *receiver);
  return absl::OkStatus();
}

class FramedTransport final : public Transport {
 public:
  FramedTransport(const FramedOptions& options, LoopSockets sockets, std::unique_ptr<Medium> medium,
                  Passage passage, FrameReceiver* receiver)
      : medium_(std::move(medium)),
        passage_(std::move(passage)),
        streams_(static_cast<uint64_t>(options.max_queued_frames)),
        links_(medium_->name()),
        loop_(options, std::move(sockets), *medium_, receiver != nullptr ? *receiver : no_receiver_,
              passage_.ways(), streams_, links_, counters_) {}

  std::string address() const override { return medium_->address(); }
  absl::Status MayReach(std::string_view peer) const override { return medium_->MayReach(peer); }

  absl::Status OpenStream(std::string_view peer, uint64_t stream, uint64_t epoch,
                          Duration renew_every, StreamEnded ended) override {
    RETURN_IF_ERROR(medium_->MayReach(peer));
    const StreamKey key = {.stream = stream, .epoch = epoch};
    ASSIGN_OR_RETURN(const uint64_t serial, streams_.Open(key, std::move(ended)));
    loop_.Post(OpenCommand{
        .key = key, .serial = serial, .peer = std::string(peer), .renew_every = renew_every});
    return absl::OkStatus();
  }

  absl::Status Post(uint64_t stream, uint64_t epoch,
                    std::span<const PostedExtent> extents) override {
    for (const PostedExtent& extent : extents) {
      RETURN_IF_ERROR(CheckFitsSlot(stream, extent.payload.size()));
      RETURN_IF_ERROR(medium_->MayCarry(extent.payload));
    }
    const StreamKey key = {.stream = stream, .epoch = epoch};
    ASSIGN_OR_RETURN(const auto serial, streams_.Admit(key, extents));
    if (!serial || extents.empty()) return absl::OkStatus();
    loop_.Post(
        PostCommand{.key = key, .serial = *serial, .extents = {extents.begin(), extents.end()}});
    return absl::OkStatus();
  }

  absl::Status FinishStream(uint64_t stream, uint64_t epoch) override {
    const StreamKey key = {.stream = stream, .epoch = epoch};
    ASSIGN_OR_RETURN(const auto commit, streams_.Finish(key));
    if (!commit) return absl::OkStatus();
    loop_.Post(FinishCommand{.key = key, .serial = commit->serial, .frames = commit->frames});
    return absl::OkStatus();
  }

  void AbortStream(uint64_t stream, uint64_t epoch) override {
    const StreamKey key = {.stream = stream, .epoch = epoch};
    // Not found: it ended, and what ends a stream lets go of its payloads first.
    if (const auto serial = streams_.Find(key)) loop_.Abort(key, *serial);
  }

  std::vector<LinkStats> links() const override { return links_.stats(); }
  RefusedFrames refused() const override {
    return {.malformed = counters_.malformed,
            .corrupted = counters_.corrupted,
            .stale = counters_.stale,
            .strangers = counters_.strangers,
            .closed = counters_.closed};
  }
  size_t buffer_bytes() const override {
    return medium_->buffer_bytes() + IoLoop::kReadAheadBytes + passage_.buffer_bytes();
  }
  uint64_t bytes_sent() const override { return counters_.sent; }
  uint64_t bytes_received() const override { return counters_.received; }

 private:
  absl::Status CheckFitsSlot(uint64_t stream, size_t payload_bytes) const {
    if (passage_.staged_out == nullptr) return absl::OkStatus();
    const size_t most = passage_.staged_out->pool().payload_bytes();
    if (payload_bytes <= most) return absl::OkStatus();
    return InvalidArgument("stream {}: payload of {} bytes: this transport stages at most {}",
                           stream, payload_bytes, most);
  }

  const std::unique_ptr<Medium> medium_;
  const Passage passage_;
  NoReceiver no_receiver_;
  SendStreams streams_;
  Links links_;
  TransportCounters counters_;
  IoLoop loop_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> NewFramedTransport(const FramedOptions& options,
                                                              std::unique_ptr<Medium> medium,
                                                              FrameReceiver* receiver) {
  TANDEM_CHECK(options.connections >= 1 && options.connections <= int{kMaxGroupConnections},
               "a group of connections that cannot be");
  ASSIGN_OR_RETURN(LoopSockets sockets, LoopSockets::Open());
  ASSIGN_OR_RETURN(Passage passage, Passage::SetAside(options, medium->has_lanes(), receiver));
  return std::make_unique<FramedTransport>(options, std::move(sockets), std::move(medium),
                                           std::move(passage), receiver);
}

}  // namespace tandem
