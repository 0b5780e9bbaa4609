#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "tests/support/frame_proxy.h"

namespace tandem {

// The frame that a fault waits for, and what happens then.
struct FrameTrigger {
  // The stream of one request: the first that begins after the trigger was set. Without it any.
  enum class Whose : uint8_t { kNextStream, kAny };
  Whose whose = Whose::kNextStream;
  FrameType type = FrameType::kData;
  bool any_type = false;  // whatever the stream sends first
  uint32_t nth = 1;       // of its data frames
  // What is dropped once, before: with the second data frame the receiver asks for it again, with
  // the commit the stream stands long enough to be renewed.
  enum class Lose : uint8_t { kNothing, kData, kCommit };
  Lose lose = Lose::kNothing;
  // At so many frames that it would fire at, the connection is cut instead: the stream is opened
  // again.
  uint32_t cuts_before = 0;
  // On the proxy's thread, once: must not block.
  std::function<FrameAction(const ObservedFrame&, size_t proxy)> act;
};

// What all proxies ask about each frame. Thread-safe.
class FrameDesk {
 public:
  // Routes the proxies here; they must end before the desk, or be healed.
  explicit FrameDesk(std::vector<FrameProxy*> proxies);
  ~FrameDesk();

  using Ticket = uint64_t;
  Ticket Set(FrameTrigger trigger);
  // Takes it back, and waits for what it is doing. Whether it had fired.
  bool Take(Ticket ticket);
  // Waits until it has fired and acted, or `over` (under a lock), looked at again after each Nudge.
  bool AwaitFired(Ticket ticket, const std::function<bool()>& over) const;
  // ... or it knows its stream.
  void AwaitClaimed(Ticket ticket, const std::function<bool()>& over) const;
  void Nudge();
  // Where the first frame of the stream came from and went to; nothing while none was seen.
  struct Way {
    size_t proxy = 0;
    uint16_t sender_port = 0;
  };
  std::optional<Way> WayOf(Ticket ticket) const;

  // Whether it has fired, and no frame came since of the stream that it fired at.
  bool IsQuietSince(Ticket ticket) const;

  // What is held at all proxies goes on.
  void Release();
  FrameProxy& proxy(size_t index) const { return *proxies_[index]; }

 private:
  using StreamId = std::pair<uint64_t, uint64_t>;  // and epoch
  enum class Verdict : uint8_t { kPass, kDrop, kCut, kFire };
  struct Waiting {
    Ticket ticket = 0;
    FrameTrigger trigger;
    std::optional<StreamId> stream;
    Way way;  // of the stream
    uint32_t data_frames = 0;
    uint32_t cuts = 0;
    uint32_t frames_since = 0;  // it fired
    bool lost = false;
    bool fired = false;
    bool acting = false;
  };

  FrameAction OnFrame(size_t proxy, const ObservedFrame& frame);
  // The first trigger that waits for a stream gets one that has not been seen before.
  void ClaimStream(size_t proxy, const ObservedFrame& frame) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static bool IsMeant(const Waiting& one, const ObservedFrame& frame);
  static bool IsToBeLost(const Waiting& one, FrameType type);
  static Verdict Judge(Waiting& one, const ObservedFrame& frame);
  const Waiting* Find(Ticket ticket) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  const std::vector<FrameProxy*> proxies_;
  mutable absl::Mutex mutex_;
  std::list<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  std::set<StreamId> seen_ ABSL_GUARDED_BY(mutex_);
  Ticket next_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t nudges_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tandem
