#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/unique_fd.h"

namespace tandem {

// Writes lines to a descriptor, such as stderr, that may be a pipe which nobody reads. A line that
// cannot be written within 100 ms is dropped and counted, and so are those after it, without any
// wait, until the reader goes on. The next line that is written comes after a note that says how
// many are missing. Nothing is queued, so a process that dies loses no line.
// Thread-safe. The process must ignore SIGPIPE if it is to outlive its reader.
class LineWriter {
 public:
  // `fd` must stay open. Its flags are left alone, because other processes may share them: a pipe
  // or terminal is opened a second time instead.
  explicit LineWriter(int fd);

  // Makes the note, without its line feed, from the number of lines that are missing; by default it
  // is a sentence in parentheses.
  using Note = std::string (*)(uint64_t missing);
  void SetNote(Note note) ABSL_LOCKS_EXCLUDED(mutex_);
  // Writes or drops `line`, which ends with a line feed.
  void Write(std::string_view line) ABSL_LOCKS_EXCLUDED(mutex_);
  uint64_t dropped() const { return dropped_; }

 private:
  bool Send(std::string_view text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // As write(2), but fails with EAGAIN instead of waiting.
  ssize_t SendPart(std::string_view text) const;

  enum class Kind : uint8_t { kNonBlocking, kSocket, kBlocking };

  UniqueFd own_;  // the second opening of a pipe or terminal; not valid() where there is none
  int fd_;
  Kind kind_;
  std::atomic<uint64_t> dropped_ = 0;
  absl::Mutex mutex_;  // held across a write, which waits for at most 100 ms
  Note note_ ABSL_GUARDED_BY(mutex_);
  uint64_t unreported_ ABSL_GUARDED_BY(mutex_) = 0;  // lines dropped since the last note
  bool stalled_ ABSL_GUARDED_BY(mutex_) = false;     // the last line was dropped
  bool in_line_ ABSL_GUARDED_BY(mutex_) = false;     // the last line was written only in part
};

}  // namespace tandem
