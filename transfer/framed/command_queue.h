#pragma once

#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/unique_fd.h"
#include "transfer/framed/outgoing_stream.h"

namespace tandem {

// The longest sleep of the I/O loop. It wakes at least this often for the watchdog that counts its
// turns, and for commands that do not wake it.
inline constexpr std::chrono::milliseconds kLongestSleep{500};

// The commands that wait for the I/O loop, and the descriptor that wakes it.
// Thread-safe.
class CommandQueue {
 public:
  // `wake` is an eventfd that does not block.
  explicit CommandQueue(UniqueFd wake) : wake_(std::move(wake)) {}

  // Queues a command. Never blocks. Wakes the loop if it sleeps, except for a stream whose first
  // renewal can wait for the loop's next turn: opening it alone would wake the loop once more, just
  // when its caller begins to compute. A lease that is renewed so rarely was made or prolonged a
  // moment ago.
  void Push(StreamCommand command);
  // Asks the loop to stop.
  void Stop();

  // The calls from here on are for the loop's thread.
  int wake_fd() const { return wake_.get(); }
  std::vector<StreamCommand> TakeAll();
  // Prepares the loop's sleep: false when commands wait. After true, the thread that pushes the
  // next command wakes the loop.
  bool FallAsleep();
  bool stopping() const;
  void ClearWake() const;

 private:
  void Wake() const;

  const UniqueFd wake_;
  mutable absl::Mutex mutex_;
  std::vector<StreamCommand> commands_ ABSL_GUARDED_BY(mutex_);
  bool asleep_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tandem
