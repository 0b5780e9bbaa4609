#pragma once

#include "base/unique_fd.h"

namespace tandem::terminal {

// What the thread at the terminal sleeps on: the threads that receive an answer wake it, and so do
// signals.
class Wakeup {
 public:
  Wakeup();

  // May be called on any thread, and in a signal handler.
  void Wake();
  // Waits until Wake has been called since the last return of a wait.
  void Wait();
  // Waits until `fd` can be read or Wake has been called; returns whether `fd` can be read. Uses up
  // pending wakes in either case.
  bool WaitFor(int fd);

 private:
  void Clear();

  const UniqueFd event_;
};

// As long as this object lives, Ctrl-C, a change of the window's size and a return to the
// foreground are recorded and wake `wakeup`, which outlives this, instead of having their usual
// effect. Only one may exist in a process, because signal handlers belong to the process.
class TerminalSignals {
 public:
  explicit TerminalSignals(Wakeup& wakeup);
  ~TerminalSignals();
  TerminalSignals(const TerminalSignals&) = delete;
  TerminalSignals& operator=(const TerminalSignals&) = delete;

  // Each Take function returns whether its signal has come since its last call.
  bool TakeInterrupt();
  bool TakeResize();
  bool TakeContinue();
};

}  // namespace tandem::terminal
