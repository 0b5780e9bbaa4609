#pragma once

#include "base/unique_fd.h"

namespace tandem::terminal {

// What the thread at the terminal sleeps on: the threads that receive an answer wake it, and so do
// signals.
class Wakeup {
 public:
  Wakeup();

  // From any thread, and from a handler of a signal.
  void Wake();
  // Returns once Wake was called since the last return.
  void Wait();
  // Returns once `fd` can be read or Wake was called; true for the former. Wakes are used up in
  // either case.
  bool WaitFor(int fd);

 private:
  void Clear();

  const UniqueFd event_;
};

// While it lives, Ctrl-C, a change of the window's size and a return to the foreground are noted
// instead of acted on, and wake `wakeup`, which outlives it. One at a time in a process, because
// signals are the process's.
class TerminalSignals {
 public:
  explicit TerminalSignals(Wakeup& wakeup);
  ~TerminalSignals();
  TerminalSignals(const TerminalSignals&) = delete;
  TerminalSignals& operator=(const TerminalSignals&) = delete;

  // Whether it happened since the last call.
  bool TakeInterrupt();
  bool TakeResize();
  bool TakeContinue();
};

}  // namespace tandem::terminal
