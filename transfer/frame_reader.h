#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transfer/frame.h"

namespace tandem {

// What a FrameReader tells of the frames that it finds.
class FrameHandler {
 public:
  virtual ~FrameHandler() = default;
  // Where the payload of a data frame goes, payload_bytes long. A status: it is read and dropped,
  // and Landed is not called.
  virtual absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader& header) = 0;
  // As FrameReceiver::Landed.
  virtual void Landed(const FrameHeader& header, const absl::Status& status) = 0;
  // A frame without payload. A status ends the connection.
  virtual absl::Status Control(const FrameHeader& header) = 0;
};

// Cuts a stream of bytes into frames and puts each payload straight into its place. Apart from the
// socket, so that it can be tested and fuzzed: ask Targets, fill them, call Advance.
// Thread: one.
class FrameReader {
 public:
  explicit FrameReader(FrameHandler& handler) : handler_(handler) {}
  FrameReader(const FrameReader&) = delete;
  FrameReader& operator=(const FrameReader&) = delete;

  // Where the next bytes belong, the first span before the second, which may be empty: the rest of
  // a payload and the head of the frame after it come with one call of readv.
  std::array<std::span<std::byte>, 2> Targets();

  // `count` bytes were put into Targets(). An error means that what came is no frame: the bytes
  // after it mean nothing, so the connection must be closed.
  absl::Status Advance(size_t count);

  // Targets and Advance over bytes that are at hand.
  absl::Status Feed(std::span<const std::byte> bytes);

  // No further bytes will come: a payload that landed half-way is reported with `status`.
  void Stop(const absl::Status& status);

  // Whether a frame has begun and not ended.
  bool mid_frame() const { return filled_ > 0 || state_ != State::kHeader; }

 private:
  enum class State : uint8_t { kHeader, kLanding, kDropping };

  absl::Status HeaderFilled();
  void PayloadFilled();

  FrameHandler& handler_;
  State state_ = State::kHeader;
  std::array<std::byte, kFrameHeaderBytes> header_bytes_;
  FrameHeader header_;            // of the payload that is coming
  std::span<std::byte> landing_;  // kLanding
  size_t filled_ = 0;             // bytes of the current header or payload so far
  std::vector<std::byte> dropped_;
};

}  // namespace tandem
