#include "transfer/fabric/link_prober.h"

#include <algorithm>
#include <memory>
#include <random>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace tandem {
namespace {

constexpr double kBulkSeconds = 0.1;
constexpr uint64_t kLeastFrames = 16;

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

DeviceBuffer HostMemory(size_t size) {
  auto* const data = new std::byte[size];
  for (size_t i = 0; i < size; ++i) data[i] = static_cast<std::byte>(i * 131 >> 3);
  return DeviceBuffer(data, size, [](std::byte* memory, size_t) { delete[] memory; });
}

// The number of the first probe stream. Several workers may probe one peer, which tells them apart
// by the random bits in it (ProberOf).
uint64_t FirstStream() {
  std::random_device device;
  return kProbeStreamBit | uint64_t{device()} << kProbeCountBits;
}

}  // namespace

Duration Median(std::vector<Duration> times) {
  TANDEM_CHECK(!times.empty(), "a probe repeats each timing");
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

LinkProbe Evaluate(const ProbeTimings& timings) {
  const Duration bulk = Median(timings.bulk);
  // A bulk stream that takes hardly longer than an empty stream measures the clock and the
  // scheduler, not the link; half of its time bounds the rate.
  const Duration moving = std::max({bulk - Median(timings.empty), bulk / 2, Duration(1)});
  const Duration frames = Median(timings.many_small) - Median(timings.one_small);
  return {.gigabytes_per_second = static_cast<double>(timings.bulk_bytes) / 1e9 / Seconds(moving),
          .setup = timings.first,
          .round_trip = Median(timings.empty),
          .operation = std::max(Duration(0), frames / (kProbeSmallFrames - 1))};
}

uint64_t BulkBytes(uint64_t bytes, Duration time) {
  const double per_second = static_cast<double>(bytes) / std::max(Seconds(time), 1e-9);
  return static_cast<uint64_t>(std::clamp(per_second * kBulkSeconds,
                                          static_cast<double>(kLeastBulkBytes),
                                          static_cast<double>(kMostBulkBytes)));
}

uint32_t BulkPayloadBytes(uint64_t bulk_bytes, uint32_t extent_bytes) {
  return static_cast<uint32_t>(std::min<uint64_t>(extent_bytes, bulk_bytes / kLeastFrames));
}

absl::StatusOr<DeviceBuffer> AllocateProbeMemory(Device* device, size_t size, bool shared) {
  DeviceBuffer host = HostMemory(size);
  if (device == nullptr) return host;
  ASSIGN_OR_RETURN(DeviceBuffer memory,
                   shared ? device->AllocateShared(size) : device->Allocate(size));
  ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device->NewStream());
  RETURN_IF_ERROR(stream->Copy(memory.bytes(), host.bytes()));
  RETURN_IF_ERROR(stream->Synchronize());
  return memory;
}

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
  // The bytes are counted before the frames can be sent, so that they never pass for KV
  // (Fabric::bytes_sent).
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
  const absl::StatusOr<End> end = posted.ok() ? AwaitEnd(stream) : posted;
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
