#include "base/thread_pool.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/thread_name.h"

namespace tandem {
namespace {

using Body = absl::FunctionRef<void(int64_t index, int thread)>;

// Longer than the gap between two operations of a forward pass, so that workers do not sleep within
// one; short enough that an idle process uses no CPU.
constexpr std::chrono::microseconds kSpinTime{80};

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins for kSpinTime while `value` equals `old`, then sleeps until it changes.
template <typename T>
void WaitWhile(std::atomic<T>& value, T old) {
  const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
  while (value.load() == old) {
    if (std::chrono::steady_clock::now() >= deadline) {
      value.wait(old);
      return;
    }
    for (int i = 0; i < 4; ++i) Pause();
  }
}

}  // namespace

// A loop is open from the caller's `open = true` to its `open = false`; `body` and `count` are
// written only while it is closed and `active` is 0. A worker counts itself into `active` before it
// looks at `open`, and the caller closes before it looks at `active`: so either the worker sees the
// loop closed, or the caller waits for it. A worker that wakes late costs the caller nothing.
//
//            caller                             worker
//   closed   writes body, count; next = 0       spins, then sleeps on `epoch`
//   open     takes indices                      active += 1, takes indices, active -= 1
//   closed   waits until active is 0            active += 1, sees closed, active -= 1
struct ThreadPool::State {
  const Body* body = nullptr;
  int64_t count = 0;
  alignas(64) std::atomic<int64_t> next{0};
  alignas(64) std::atomic<uint32_t> epoch{0};  // changes when a parallel loop opens
  std::atomic<bool> open{false};
  std::atomic<bool> stop{false};
  alignas(64) std::atomic<int> active{0};
  std::vector<std::thread> workers;

  void TakeIndices(int thread) {
    for (int64_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) (*body)(i, thread);
  }

  void Work(int thread) {
    uint32_t seen = 0;
    while (true) {
      WaitWhile(epoch, seen);
      seen = epoch.load();
      if (stop.load()) return;
      active.fetch_add(1);
      if (open.load()) TakeIndices(thread);
      if (active.fetch_sub(1) == 1) active.notify_one();
    }
  }

  void Wake() {
    epoch.fetch_add(1);
    epoch.notify_all();
  }
};

ThreadPool::ThreadPool(int num_threads) : state_(std::make_unique<State>()) {
  TANDEM_CHECK(num_threads >= 1, "a pool has at least the calling thread");
  for (int thread = 1; thread < num_threads; ++thread) {
    state_->workers.emplace_back([state = state_.get(), thread] {
      NameThisThread("compute");
      state->Work(thread);
    });
  }
}

ThreadPool::~ThreadPool() {
  state_->stop.store(true);
  state_->Wake();
  for (std::thread& worker : state_->workers) worker.join();
}

int ThreadPool::num_threads() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::ParallelFor(int64_t count, Body body) {
  if (count <= 1 || state_->workers.empty()) {
    for (int64_t i = 0; i < count; ++i) body(i, 0);
    return;
  }
  State& state = *state_;
  state.body = &body;
  state.count = count;
  state.next.store(0);
  state.open.store(true);
  state.Wake();
  state.TakeIndices(0);
  state.open.store(false);
  for (int active = state.active.load(); active != 0; active = state.active.load()) {
    WaitWhile(state.active, active);
  }
}

}  // namespace tandem
