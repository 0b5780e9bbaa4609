#include "transfer/fabric/link_prober.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/time/time.h"
#include "base/status.h"

namespace tandem {
namespace {

// Several workers may probe one peer, which tells them apart by this number (ProberOf).
uint64_t FirstStream() {
  std::random_device device;
  return kProbeStreamBit | uint64_t{device()} << kProbeCountBits;
}

}  // namespace

LinkProber::LinkProber(size_t extent_bytes, DeviceBuffer memory, const Clock& clock)
    : extent_bytes_(static_cast<uint32_t>(
          std::clamp<size_t>(extent_bytes, kProbeSmallPayload, kMaxProbePayload))),
      clock_(clock),
      memory_(std::move(memory)),
      next_stream_(FirstStream()) {}

void LinkProber::Stop() {
  absl::MutexLock lock(&mutex_);
  stopping_ = true;
  ended_or_stopped_.Signal();
}

void LinkProber::OnEnded(uint64_t stream, const absl::Status& status) {
  const TimePoint now = clock_.Now();
  absl::MutexLock lock(&mutex_);
  if (stream == awaited_) ended_ = {.stream = stream, .when = now, .status = status};
  ended_or_stopped_.Signal();
}

absl::StatusOr<LinkProber::End> LinkProber::AwaitEnd(uint64_t stream) {
  const auto over = [this, stream]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || ended_.stream == stream;
  };
  absl::MutexLock lock(&mutex_);
  const bool in_time = ended_or_stopped_.AwaitFor(mutex_, kPatience, over);
  if (ended_.stream == stream) return ended_;
  if (in_time) return Cancelled("stopped");
  return DeadlineExceeded("a probe's stream took longer than {} s",
                          std::chrono::duration_cast<std::chrono::seconds>(kPatience).count());
}

absl::Status LinkProber::Post(SendStream& stream, Load load) {
  const size_t sources = memory_.size() / kMaxProbePayload;
  std::vector<PostedExtent> extents;
  for (int i = 0; i < load.frames; ++i) {
    const size_t offset = static_cast<size_t>(i) % sources * kMaxProbePayload;
    extents.push_back({.block = static_cast<uint32_t>(i),
                       .payload = memory_.bytes().subspan(offset, load.payload_bytes)});
  }
  // Counted before the frames can be sent, so that they never pass for KV (Fabric::bytes_sent).
  bytes_sent_ += extents.size() * (kFrameHeaderBytes + load.payload_bytes);
  RETURN_IF_ERROR(stream.Post(extents));
  return stream.Finish();
}

absl::StatusOr<Duration> LinkProber::Send(const Target& target, Load load) {
  const uint64_t stream = ++next_stream_;
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return Cancelled("stopped");
    awaited_ = stream;
  }
  const TimePoint begin = clock_.Now();
  ASSIGN_OR_RETURN(
      const StreamHandle handle,
      target.transport.OpenStream(target.address, stream, target.epoch, Duration::zero(),
                                  [this](uint64_t ended, uint64_t, const absl::Status& status) {
                                    OnEnded(ended, status);
                                  }));
  const absl::Status posted = Post(*handle, load);
  if (!posted.ok()) {
    handle->Abort();
    return posted;
  }
  const absl::StatusOr<End> end = AwaitEnd(stream);
  if (!end.ok()) {
    handle->Abort();
    return end.status();
  }
  RETURN_IF_ERROR(end->status);
  return end->when - begin;
}

absl::Status LinkProber::Repeat(const Target& target, Load load, std::vector<Duration>& times) {
  for (int i = 0; i < kProbeRepeats; ++i) {
    ASSIGN_OR_RETURN(const Duration time, Send(target, load));
    times.push_back(time);
  }
  return absl::OkStatus();
}

LinkProber::Load LinkProber::BulkOf(uint64_t bytes) const {
  const uint32_t payload = BulkPayloadBytes(bytes, extent_bytes_);
  return {.frames = static_cast<int>(bytes / payload), .payload_bytes = payload};
}

absl::StatusOr<LinkProber::Load> LinkProber::ChooseBulk(const Target& target, Duration empty) {
  for (uint64_t bytes = kLeastBulkBytes;; bytes *= kTrialGrowth) {
    ASSIGN_OR_RETURN(const Duration time, Send(target, BulkOf(bytes)));
    const Duration moving = std::max(time - empty, Duration::zero());
    if (moving < kLongTrial && bytes < kLargestTrialBytes) continue;
    return BulkOf(BulkBytes(bytes, moving));
  }
}

absl::StatusOr<LinkProbe> LinkProber::Measure(Transport& transport, std::string_view address,
                                              uint64_t epoch) {
  const Target target = {.transport = transport, .address = address, .epoch = epoch};
  ProbeTimings timings;
  ASSIGN_OR_RETURN(timings.first, Send(target, {}));
  RETURN_IF_ERROR(Repeat(target, {}, timings.empty));
  constexpr Load kOne = {.frames = 1, .payload_bytes = kProbeSmallPayload};
  constexpr Load kMany = {.frames = kProbeSmallFrames, .payload_bytes = kProbeSmallPayload};
  RETURN_IF_ERROR(Repeat(target, kOne, timings.one_small));
  RETURN_IF_ERROR(Repeat(target, kMany, timings.many_small));
  ASSIGN_OR_RETURN(const Load bulk, ChooseBulk(target, Median(timings.empty)));
  RETURN_IF_ERROR(Repeat(target, bulk, timings.bulk));
  timings.bulk_bytes = static_cast<uint64_t>(bulk.frames) * bulk.payload_bytes;
  return Evaluate(timings);
}

}  // namespace tandem
