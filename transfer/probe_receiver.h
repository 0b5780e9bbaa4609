#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "kernels/device.h"
#include "transfer/link_probe.h"
#include "transfer/stream_key.h"
#include "transfer/transport.h"

namespace tandem {

// Takes the streams of probes (kProbeStreamBit) that peers send, into memory set aside, and passes
// all others on. What is taken at once is bounded: kMaxStreams streams, beyond which a stream is
// refused with RESOURCE_EXHAUSTED, and kSlots payloads, beyond which one is dropped and its stream
// fails.
// Thread-safe.
class ProbeReceiver final : public FrameReceiver {
 public:
  static constexpr size_t kSlots = 16;
  static constexpr size_t kMaxStreams = 8;
  static constexpr size_t kMemoryBytes = kSlots * kMaxProbePayload;
  // A stream of which so long nothing came makes room for another.
  static constexpr Duration kIdle = std::chrono::seconds(5);

  // `next` may be null: then only probes are taken. `epoch`: this process's; probes of another are
  // refused. `memory`: kMemoryBytes. `next` and `clock` outlive this.
  ProbeReceiver(FrameReceiver* next, uint64_t epoch, DeviceBuffer memory, const Clock& clock);

  absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader& header) override;
  void Landed(const FrameHeader& header, const absl::Status& status) override;
  CommitAnswer Commit(const FrameHeader& header) override;
  absl::Status Renewed(uint64_t stream, uint64_t epoch) override;

  size_t buffer_bytes() const { return memory_.size(); }
  // Frames of probes that landed, headers included.
  uint64_t bytes_received() const { return bytes_received_; }

 private:
  struct Stream {
    uint64_t landed = 0;
    TimePoint last_heard;
  };
  struct Slot {
    bool taken = false;
    FrameHeader header;  // of the payload that is landing
  };

  absl::Status CheckEpoch(uint64_t epoch) const;
  absl::StatusOr<Stream*> FindOrTake(StreamKey key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  FrameReceiver* const next_;
  const uint64_t epoch_;
  const Clock& clock_;
  const DeviceBuffer memory_;  // slot i: kMaxProbePayload bytes from i * kMaxProbePayload
  std::atomic<uint64_t> bytes_received_ = 0;
  absl::Mutex mutex_;
  std::vector<Slot> slots_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<StreamKey, Stream> streams_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
