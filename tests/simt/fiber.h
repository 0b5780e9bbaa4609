#pragma once

#include <boost/context/fiber.hpp>
#include <cstddef>

namespace simt {

// A stack that one lane after another runs on: Resume() runs the body until it calls Suspend(), and
// the next Resume() goes on from there. The body never returns. One thread at a time, not always
// the same one.
class Fiber {
 public:
  using Body = void (*)(void* context);

  // The body starts at the first Resume(). `number` (from 0) picks a stack of its own.
  void Start(int number, Body body, void* context);
  bool started() const { return started_; }
  void Resume();
  void Suspend();
  // False when the stack has been overrun.
  bool StackIntact() const;

 private:
  boost::context::fiber fiber_;
  boost::context::fiber host_;
  bool started_ = false;
  std::byte* stack_ = nullptr;
  // What the sanitizers are told at each switch.
  void* thread_state_ = nullptr;
  void* host_thread_state_ = nullptr;
  void* fake_stack_ = nullptr;
  const void* host_stack_ = nullptr;
  size_t host_stack_size_ = 0;
};

}  // namespace simt
