#include "transfer/link_prober.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/time/time.h"
#include "base/status.h"

namespace tandem {
namespace {

// Several workers probe one peer: their streams must not meet.
uint64_t RandomStream() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

}  // namespace

LinkProber::LinkProber(size_t extent_bytes, DeviceBuffer memory, const Clock& clock)
    : extent_bytes_(static_cast<uint32_t>(
          std::clamp<size_t>(extent_bytes, kProbeSmallPayload, kMaxProbePayload))),
      clock_(clock),
      memory_(std::move(memory)),
      next_stream_(RandomStream()) {}

void LinkProber::Stop() {
  absl::MutexLock lock(&mutex_);
  stopping_ = true;
}

void LinkProber::OnEnded(uint64_t stream, const absl::Status& status) {
  const TimePoint now = clock_.Now();
  absl::MutexLock lock(&mutex_);
  if (stream == awaited_) ended_ = {.stream = stream, .when = now, .status = status};
}

absl::StatusOr<LinkProber::End> LinkProber::AwaitEnd(uint64_t stream) {
  const auto over = [this, stream]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || ended_.stream == stream;
  };
  absl::MutexLock lock(&mutex_);
  const bool in_time = mutex_.AwaitWithTimeout(absl::Condition(&over), absl::FromChrono(kPatience));
  if (ended_.stream == stream) return ended_;
  if (in_time) return Cancelled("stopped");
  return DeadlineExceeded("a probe's stream took longer than {} s",
                          std::chrono::duration_cast<std::chrono::seconds>(kPatience).count());
}

absl::Status LinkProber::Post(const Target& target, uint64_t stream, Load load) {
  const size_t places = memory_.size() / kMaxProbePayload;
  std::vector<PostedExtent> extents;
  for (int i = 0; i < load.frames; ++i) {
    const size_t place = static_cast<size_t>(i) % places * kMaxProbePayload;
    extents.push_back({.block = static_cast<uint32_t>(i),
                       .payload = memory_.bytes().subspan(place, load.payload_bytes)});
  }
  // Before they can be sent: else they would pass for KV meanwhile.
  bytes_sent_ += extents.size() * (kFrameHeaderBytes + load.payload_bytes);
  RETURN_IF_ERROR(target.transport.Post(stream, target.epoch, extents));
  return target.transport.FinishStream(stream, target.epoch);
}

absl::StatusOr<Duration> LinkProber::Send(const Target& target, Load load) {
  const uint64_t stream = kProbeStreamBit | ++next_stream_;
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return Cancelled("stopped");
    awaited_ = stream;
  }
  const TimePoint begin = clock_.Now();
  RETURN_IF_ERROR(target.transport.OpenStream(
      target.address, stream, target.epoch, Duration::zero(),
      [this](uint64_t ended, uint64_t, const absl::Status& status) { OnEnded(ended, status); }));
  const absl::Status posted = Post(target, stream, load);
  if (!posted.ok()) {
    target.transport.AbortStream(stream, target.epoch);
    return posted;
  }
  const absl::StatusOr<End> end = AwaitEnd(stream);
  if (!end.ok()) {
    target.transport.AbortStream(stream, target.epoch);
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
