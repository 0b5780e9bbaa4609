#include "transfer/fabric/probe_receiver.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace tandem {
namespace {

bool IsProbe(uint64_t stream) { return (stream & kProbeStreamBit) != 0; }

}  // namespace

ProbeReceiver::ProbeReceiver(FrameReceiver* next, uint64_t epoch, DeviceBuffer memory,
                             const Clock& clock)
    : next_(OrNoReceiver(next)),
      epoch_(epoch),
      clock_(clock),
      memory_(std::move(memory)),
      slots_(kSlots) {}

absl::Status ProbeReceiver::CheckEpoch(uint64_t epoch) const {
  if (epoch == epoch_) return absl::OkStatus();
  return PermissionDenied("a probe of epoch {:016x}; this is {:016x}", epoch, epoch_);
}

absl::Status ProbeReceiver::TakeTurn(uint64_t stream) {
  const TimePoint now = clock_.Now();
  if (ProberOf(stream) != prober_) {
    if (now < turn_ends_) return ResourceExhausted("another worker probes this one: retry later");
    prober_ = ProberOf(stream);
    streams_.clear();
  }
  turn_ends_ = now + kTurnEnds;
  return absl::OkStatus();
}

absl::StatusOr<ProbeReceiver::Stream*> ProbeReceiver::FindOrAdd(StreamKey key) {
  RETURN_IF_ERROR(TakeTurn(key.stream));
  const TimePoint now = clock_.Now();
  if (!streams_.contains(key) && streams_.size() >= kMaxStreams) {
    absl::erase_if(streams_,
                   [now](const auto& entry) { return entry.second.last_heard + kIdle <= now; });
    if (streams_.size() >= kMaxStreams) {
      return ResourceExhausted("{} probes are under way: retry later", kMaxStreams);
    }
  }
  Stream& stream = streams_[key];
  stream.last_heard = now;
  return &stream;
}

absl::StatusOr<std::span<std::byte>> ProbeReceiver::Prepare(const FrameHeader& header) {
  if (!IsProbe(header.stream)) return next_.Prepare(header);
  RETURN_IF_ERROR(CheckEpoch(header.epoch));
  if (header.payload_bytes > kMaxProbePayload) {
    return InvalidArgument("a probe's payload of {} bytes exceeds {}", header.payload_bytes,
                           kMaxProbePayload);
  }
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(Stream* const stream, FindOrAdd(KeyOf(header)));
  const auto free = std::ranges::find(slots_, false, &std::optional<FrameHeader>::has_value);
  if (free == slots_.end()) {
    stream->lacked_slot = true;
    return MakeStatus(absl::StatusCode::kAborted, "all slots for probes are taken");
  }
  *free = header;
  const auto index = static_cast<size_t>(free - slots_.begin());
  return memory_.bytes().subspan(index * kMaxProbePayload, header.payload_bytes);
}

void ProbeReceiver::Landed(const FrameHeader& header, const absl::Status& status) {
  if (!IsProbe(header.stream)) return next_.Landed(header, status);
  absl::MutexLock lock(&mutex_);
  const auto slot = std::ranges::find(slots_, header);
  TANDEM_CHECK(slot != slots_.end(), "Landed without Prepare");
  slot->reset();
  if (!status.ok()) return;
  bytes_received_ += kFrameHeaderBytes + header.payload_bytes;
  const auto stream = streams_.find(KeyOf(header));
  if (stream != streams_.end()) ++stream->second.landed;
}

CommitAnswer ProbeReceiver::Commit(const FrameHeader& header) {
  if (!IsProbe(header.stream)) return next_.Commit(header);
  if (absl::Status status = CheckEpoch(header.epoch); !status.ok()) return {.status = status};
  absl::MutexLock lock(&mutex_);
  if (absl::Status status = TakeTurn(header.stream); !status.ok()) return {.status = status};
  const auto found = streams_.extract(KeyOf(header));
  const Stream stream = found ? found.mapped() : Stream();
  if (stream.landed == header.frames) return {.status = absl::OkStatus()};
  if (stream.lacked_slot) {
    return {.status = ResourceExhausted("no slot for {} of a probe's {} frames: retry later",
                                        header.frames - stream.landed, header.frames)};
  }
  return {.status = DataLoss("{} of a probe's {} frames landed", stream.landed, header.frames)};
}

absl::Status ProbeReceiver::Renewed(uint64_t stream, uint64_t epoch) {
  return IsProbe(stream) ? CheckEpoch(epoch) : next_.Renewed(stream, epoch);
}

}  // namespace tandem
