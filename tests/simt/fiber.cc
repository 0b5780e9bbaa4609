#include "tests/simt/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

namespace simt {
namespace {

constexpr int kMaxFibers = 1024;
#if defined(SIMT_ASAN) || defined(SIMT_TSAN)
constexpr size_t kStackBytes = 256 << 10;
#else
constexpr size_t kStackBytes = 64 << 10;
#endif
constexpr uint64_t kCanary = 0xc5c5c5c5a3a3a3a3u;  // at the lower end of each stack

std::byte* Stack(int number) {
  // Stacks a power of two apart would share a few sets of the cache.
  constexpr size_t kStride = kStackBytes + 17 * 64;
  static std::byte* const stacks = [] {
    void* memory = mmap(nullptr, kMaxFibers * kStride, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      std::perror("simt: no memory for the stacks of the lanes");
      std::abort();
    }
    return static_cast<std::byte*>(memory);
  }();
  return stacks + number * kStride;
}

// Stacks live as long as the process.
struct KeepStack {
  void deallocate(boost::context::stack_context&) {}
};

boost::context::preallocated Range(std::byte* stack) {
  boost::context::stack_context range;
  range.size = kStackBytes;
  range.sp = stack + kStackBytes;
  return {range.sp, range.size, range};
}

}  // namespace

bool Fiber::StackIntact() const { return std::memcmp(stack_, &kCanary, sizeof(kCanary)) == 0; }

#if defined(SIMT_JUMPS)

namespace {

void* resumed_from[5];  // one for all: whoever resumes a fiber is not one

// A function of its own: where a setjmp is beside it, the compiler takes the jump to leave for
// good.
[[noreturn, gnu::noinline]] void Jump(void** to) { __builtin_longjmp(to, 1); }

}  // namespace

void Fiber::Start(int number, Body body, void* context) {
  stack_ = Stack(number);
  std::memcpy(stack_, &kCanary, sizeof(kCanary));
  fiber_ = boost::context::fiber(std::allocator_arg, Range(stack_), KeepStack{},
                                 [body, context](boost::context::fiber&& host) {
                                   body(context);
                                   return std::move(host);
                                 });
}

// boost enters the stack, and is not asked again.
void Fiber::Resume() {
  if (__builtin_setjmp(resumed_from) != 0) return;
  if (jumps_) Jump(suspended_);
  jumps_ = true;
  fiber_ = std::move(fiber_).resume();
}

void Fiber::Suspend() {
  if (__builtin_setjmp(suspended_) == 0) Jump(resumed_from);
}

void Fiber::SwitchTo(Fiber& next) {
  if (__builtin_setjmp(suspended_) == 0) Jump(next.suspended_);
}

#else

// The sanitizers want to be told of each switch, before and after.
void Fiber::Start(int number, Body body, void* context) {
  stack_ = Stack(number);
  std::memcpy(stack_, &kCanary, sizeof(kCanary));
#if defined(SIMT_TSAN)
  thread_state_ = __tsan_create_fiber(0);
#endif
  fiber_ = boost::context::fiber(std::allocator_arg, Range(stack_), KeepStack{},
                                 [this, body, context](boost::context::fiber&& host) {
#if defined(SIMT_ASAN)
                                   __sanitizer_finish_switch_fiber(nullptr, &host_stack_,
                                                                   &host_stack_size_);
#endif
                                   host_ = std::move(host);
                                   body(context);
                                   return std::move(host_);
                                 });
}

void Fiber::Resume() {
#if defined(SIMT_ASAN)
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, stack_, kStackBytes);
#elif defined(SIMT_TSAN)
  host_thread_state_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(thread_state_, 0);
#endif
  fiber_ = std::move(fiber_).resume();
#if defined(SIMT_ASAN)
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
}

void Fiber::Suspend() {
#if defined(SIMT_ASAN)
  __sanitizer_start_switch_fiber(&fake_stack_, host_stack_, host_stack_size_);
#elif defined(SIMT_TSAN)
  __tsan_switch_to_fiber(host_thread_state_, 0);
#endif
  host_ = std::move(host_).resume();
#if defined(SIMT_ASAN)
  __sanitizer_finish_switch_fiber(fake_stack_, &host_stack_, &host_stack_size_);
#endif
}

void Fiber::SwitchTo(Fiber&) { std::abort(); }  // CanSwitchTo is false for all

#endif

}  // namespace simt
