#pragma once

#include <boost/context/fiber.hpp>
#include <cstddef>

#include "tests/simt/sanitizers.h"

// Whether the compiler's own jumps switch between stacks: a tenth of the cost of boost's, but no
// sanitizer follows them.
#if defined(__x86_64__) && !defined(SIMT_ASAN) && !defined(SIMT_TSAN)
#define SIMT_JUMPS 1
#endif

namespace simt {

// A stack that one lane after another runs on: Resume() runs the body until it calls Suspend(), and
// the next Resume() goes on from there. The body never returns. One thread at a time resumes any of
// them, not always the same one.
class Fiber {
 public:
  using Body = void (*)(void* context);

  // The body starts at the first Resume(). `number` (from 0) picks a stack of its own.
  void Start(int number, Body body, void* context);
  bool started() const { return stack_ != nullptr; }
  void Resume();
  void Suspend();
  // Suspends this and resumes `next` at once, without going back to who resumed this. Only where
  // CanSwitchTo(next).
  void SwitchTo(Fiber& next);
  static bool CanSwitchTo(const Fiber& next) { return next.jumps_; }
  // False when the stack has been overrun.
  bool StackIntact() const;

 private:
  std::byte* stack_ = nullptr;
  bool jumps_ = false;  // it is suspended where a jump resumes it
  boost::context::fiber fiber_;
#if defined(SIMT_JUMPS)
  void* suspended_[5];
#else
  boost::context::fiber host_;
  [[maybe_unused]] void* thread_state_ = nullptr;  // of ThreadSanitizer
  [[maybe_unused]] void* host_thread_state_ = nullptr;
  [[maybe_unused]] void* fake_stack_ = nullptr;  // of AddressSanitizer
  [[maybe_unused]] const void* host_stack_ = nullptr;
  [[maybe_unused]] size_t host_stack_size_ = 0;
#endif
};

}  // namespace simt
