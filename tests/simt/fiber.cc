#include "tests/simt/fiber.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIMT_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define SIMT_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define SIMT_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define SIMT_TSAN 1
#endif
#if defined(SIMT_ASAN)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(SIMT_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace simt {
namespace {

#if defined(SIMT_ASAN) || defined(SIMT_TSAN)
constexpr size_t kStackBytes = 256 << 10;
#else
constexpr size_t kStackBytes = 64 << 10;
#endif
constexpr int kMaxFibers = 1024;
// Stacks a power of two apart would share a few sets of the cache.
constexpr size_t kStackStride = kStackBytes + 17 * 64;
constexpr unsigned char kCanary = 0xc5;
constexpr size_t kCanaryBytes = 64;

std::byte* Stack(int number) {
  static std::byte* const stacks = [] {
    void* memory = mmap(nullptr, kMaxFibers * kStackStride, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      std::perror("simt: no memory for the stacks of the lanes");
      std::abort();
    }
    return static_cast<std::byte*>(memory);
  }();
  return stacks + number * kStackStride;
}

// Stacks live as long as the process.
struct KeepStack {
  void deallocate(boost::context::stack_context&) {}
};

}  // namespace

void Fiber::Start(int number, Body body, void* context) {
  started_ = true;
  stack_ = Stack(number);
  std::memset(stack_, kCanary, kCanaryBytes);
#if defined(SIMT_TSAN)
  thread_state_ = __tsan_create_fiber(0);
#endif
  boost::context::stack_context range;
  range.size = kStackBytes;
  range.sp = stack_ + kStackBytes;
  fiber_ = boost::context::fiber(
      std::allocator_arg, boost::context::preallocated(range.sp, range.size, range), KeepStack{},
      [this, body, context](boost::context::fiber&& host) {
#if defined(SIMT_ASAN)
        __sanitizer_finish_switch_fiber(nullptr, &host_stack_, &host_stack_size_);
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
#endif
#if defined(SIMT_TSAN)
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
#endif
#if defined(SIMT_TSAN)
  __tsan_switch_to_fiber(host_thread_state_, 0);
#endif
  host_ = std::move(host_).resume();
#if defined(SIMT_ASAN)
  __sanitizer_finish_switch_fiber(fake_stack_, &host_stack_, &host_stack_size_);
#endif
}

bool Fiber::StackIntact() const {
  for (size_t i = 0; i < kCanaryBytes; ++i) {
    if (stack_[i] != std::byte{kCanary}) return false;
  }
  return true;
}

}  // namespace simt
