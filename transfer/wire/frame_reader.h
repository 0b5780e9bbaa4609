#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transfer/wire/frame.h"

namespace tandem {

// Receives the frames that a FrameReader finds.
class FrameHandler {
 public:
  virtual ~FrameHandler() = default;
  // Returns the payload_bytes bytes where the payload of a data frame goes. After an error it is
  // read and dropped, and Landed is not called.
  virtual absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader& header) = 0;
  // Reports a payload for which Prepare gave a place, as FrameReceiver::Landed does.
  virtual void Landed(const FrameHeader& header, const absl::Status& status) = 0;
  // A frame without payload came. An error ends the connection.
  virtual absl::Status Control(const FrameHeader& header) = 0;
};

// Cuts a stream of bytes into frames and puts each payload straight into its place. It does not
// read the socket itself, so that it can be tested and fuzzed: the caller fills Targets, then calls
// Advance. Thread: one.
class FrameReader {
 public:
  explicit FrameReader(FrameHandler& handler) : handler_(handler) {}
  FrameReader(const FrameReader&) = delete;
  FrameReader& operator=(const FrameReader&) = delete;

  // Where the next bytes belong: the first span before the second, which may be empty. One call of
  // readv brings the rest of a payload and the header of the next frame.
  std::array<std::span<std::byte>, 2> Targets();

  // `count` bytes were put into Targets(). An error means that they are no frame. Nobody can tell
  // where the next frame begins, so the connection must be closed.
  absl::Status Advance(size_t count);

  // Does the work of Targets and Advance for bytes that were read already.
  absl::Status Feed(std::span<const std::byte> bytes);

  // No further bytes will come. A payload that has landed half-way is reported with `status`.
  void Stop(const absl::Status& status);

  // Whether only part of a frame has come.
  bool mid_frame() const { return filled_ > 0 || state_ != State::kHeader; }

 private:
  enum class State : uint8_t { kHeader, kLanding, kDropping };

  absl::Status HeaderFilled();
  void PayloadFilled();

  FrameHandler& handler_;
  State state_ = State::kHeader;
  std::array<std::byte, kFrameHeaderBytes> header_bytes_;
  FrameHeader header_;            // the header of the payload that is arriving
  std::span<std::byte> landing_;  // where the payload goes in kLanding
  size_t filled_ = 0;             // bytes of the current header or payload that have come
  std::vector<std::byte> dropped_;
};

}  // namespace tandem
