#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "transfer/extent_stream.h"
#include "transfer/transport.h"

namespace tandem {

// Payloads that a lane has found and that are still to be copied to their places, by the device
// where both lie. The receiver hears of one when it is in place and the hash of what was written is
// that of its frame: Flush copies all that is queued and waits for it.
// Thread: the loop's.
class PulledLandings {
 public:
  static constexpr size_t kMaxQueued = 512;

  // `device` and `receiver` outlive this. Errors as ExtentStream::Create.
  static absl::StatusOr<std::unique_ptr<PulledLandings>> Create(Device& device,
                                                                FrameReceiver& receiver);

  bool empty() const { return headers_.empty(); }
  bool full() const { return headers_.size() == kMaxQueued || bytes_ >= enough_bytes_; }
  size_t buffer_bytes() const { return stream_.buffer_bytes(); }

  // Not while full. `source` stays as it is until Flush; `place`: as long.
  void Queue(const FrameHeader& header, std::span<const std::byte> source,
             std::span<std::byte> place);
  // Tells the receiver of all that was queued; how many were damaged. UNAVAILABLE when the device
  // failed: then none of them has landed.
  absl::StatusOr<size_t> Flush();

 private:
  PulledLandings(Device& device, FrameReceiver& receiver, ExtentStream stream);

  // The last may go beyond. On a device each Flush is a wait for it. On the host nothing is won by
  // many at a time, and the sender has room again only for what has landed.
  static constexpr size_t kEnoughBytes = size_t{16} << 20;
  static constexpr size_t kEnoughHostBytes = size_t{1} << 20;

  const Device& device_;
  const size_t enough_bytes_;
  FrameReceiver& receiver_;
  ExtentStream stream_;
  std::vector<FrameHeader> headers_;
  std::vector<ExtentCopy> copies_;  // of the same indices
  size_t bytes_ = 0;
};

}  // namespace tandem
