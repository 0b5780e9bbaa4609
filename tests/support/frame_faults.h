#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "transfer/wire/frame.h"

namespace tandem {

enum class FrameDirection : uint8_t {
  kToReceiver,  // from who connected: hello, data, commit, renew
  kToSender,    // ack, reject, credit, resend
};

struct ObservedFrame {
  FrameHeader header;
  FrameDirection direction = FrameDirection::kToReceiver;
  uint64_t connection = 0;   // counted from 0 in the order in which they were made
  uint16_t sender_port = 0;  // of who connected to the proxy
};

// What shall become of one frame.
struct FrameAction {
  enum class Kind : uint8_t {
    kPass,
    kDrop,
    kDuplicate,
    kSwap,        // it goes after the next frame of its direction and connection
    kFlipHeader,  // `bits` different bits, chosen by `seed`
    kFlipPayload,  // the same; of the header where there is no payload. Where a side channel brings the
                   // payload: of its hash, in a header that is whole
    kCutBefore,   // the connection ends: this frame and all after it are lost
    kCutInside,   // half of it goes first
    kCutAfter,    // all of it goes first
    kHold,        // it waits for Release, with all after it in its direction and connection
    kHoldInside,  // half of it goes; the rest waits likewise
  };
  Kind kind = Kind::kPass;
  uint32_t bits = 1;
  uint64_t seed = 0;
};

// Called for each frame when it is there whole. Not called for frames that wait behind a held one
// before that is released.
using FrameHook = std::function<FrameAction(const ObservedFrame& frame)>;

// Applies actions to one direction of one connection: bytes in, bytes out, frame by frame. Bytes
// that are no frame pass as they are, and so does all that comes after them.
// Thread: one.
class FrameFaults {
 public:
  FrameFaults(FrameDirection direction, uint64_t connection, uint16_t sender_port);

  // More bytes came. Appends to `out` what goes on.
  void Feed(std::string_view bytes, const FrameHook& hook, std::string& out);
  // What is held or waits to be swapped goes on, and then what came after it.
  void Release(const FrameHook& hook, std::string& out);

  // Nothing goes on before Release; what is fed is kept.
  bool held() const { return held_; }
  // The connection must end once what went out so far was sent.
  bool cut() const { return cut_; }
  // Bytes that have come and neither went on nor were dropped.
  size_t waiting_bytes() const { return rest_.size() + in_.size() + swapped_.size(); }
  bool not_frames() const { return not_frames_; }

 private:
  void Pump(const FrameHook& hook, std::string& out);
  // The size of the frame at the head of in_ once it is there whole.
  std::optional<size_t> WholeFrame(FrameHeader& header);
  void Apply(const FrameAction& action, std::string frame, std::string& out);

  const FrameDirection direction_;
  const uint64_t connection_;
  const uint16_t sender_port_;
  std::string in_;
  std::string rest_;           // of a frame that is held inside
  std::string swapped_;        // goes after the next frame
  bool first_passes_ = false;  // the frame that was held is not asked about again
  bool held_ = false;
  bool cut_ = false;
  bool not_frames_ = false;
};

// Flips `bits` different bits, or all when there are fewer.
void FlipBits(std::string& bytes, size_t begin, size_t end, uint32_t bits, uint64_t seed);

}  // namespace tandem
