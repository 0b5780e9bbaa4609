#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "kernels/device.h"
#include "transfer/fabric/link_prober.h"
#include "transfer/transport.h"
#include "transfer/wire/frame.h"

namespace tandem {

// Receives the probe streams (kProbeStreamBit) that peers send into memory set aside for them, and
// passes every other stream on to the next receiver.
//
// One peer probes at a time, because two would measure each other. Streams of a second peer are refused
// with RESOURCE_EXHAUSTED, which means "busy, probe later", until the first peer has been silent for
// kTurnEnds. One peer may take kMaxStreams streams and kSlots payloads that land at once. Thread-safe.
class ProbeReceiver final : public FrameReceiver {
 public:
  static constexpr size_t kSlots = 16;
  static constexpr size_t kMaxStreams = 8;
  static constexpr size_t kMemoryBytes = kSlots * kMaxProbePayload;
  // How long a stream has to be silent before it makes room for another one.
  static constexpr Duration kIdle = std::chrono::seconds(5);
  // How long the probing peer may be silent before another peer may probe: longer than the round
  // trip between two streams of one probe.
  static constexpr Duration kTurnEnds = std::chrono::seconds(1);

  // `next` may be null on a worker that receives probes alone. `epoch` is that of this process;
  // probes of another epoch are refused. `memory` has kMemoryBytes. `next` and `clock` outlive the
  // receiver.
  ProbeReceiver(FrameReceiver* next, uint64_t epoch, DeviceBuffer memory, const Clock& clock);

  absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader& header) override;
  void Landed(const FrameHeader& header, const absl::Status& status) override;
  CommitAnswer Commit(const FrameHeader& header) override;
  absl::Status Renewed(uint64_t stream, uint64_t epoch) override;

  size_t buffer_bytes() const { return memory_.size(); }
  // Bytes of the probe frames that landed, headers included.
  uint64_t bytes_received() const { return bytes_received_; }

 private:
  struct Stream {
    uint64_t landed = 0;
    bool lacked_slot = false;  // at least one payload found every slot taken
    TimePoint last_heard;
  };

  absl::Status CheckEpoch(uint64_t epoch) const;
  // Refuses a stream while it is another peer's turn to probe; otherwise gives the turn to the peer
  // that sends the stream.
  absl::Status TakeTurn(uint64_t stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Stream*> FindOrAdd(StreamKey key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  FrameReceiver& next_;
  const uint64_t epoch_;
  const Clock& clock_;
  const DeviceBuffer memory_;  // slot i begins at i * kMaxProbePayload
  std::atomic<uint64_t> bytes_received_ = 0;
  absl::Mutex mutex_;
  uint64_t prober_ ABSL_GUARDED_BY(mutex_) = 0;  // the worker whose turn it is, as ProberOf
  TimePoint turn_ends_ ABSL_GUARDED_BY(mutex_){};
  // The header of the payload that lands in each slot; empty for a free slot.
  std::vector<std::optional<FrameHeader>> slots_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<StreamKey, Stream> streams_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
