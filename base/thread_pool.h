#pragma once

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"

namespace tandem {

// A fixed set of threads for data-parallel loops of microseconds to milliseconds. The calling
// thread works too. Waiting workers spin for a few tens of microseconds and then sleep, so that a
// forward pass pays little per op and an idle process uses no CPU.
// Thread: ParallelFor from one thread at a time.
class ThreadPool {
 public:
  // num_threads counts the caller: 1 makes no thread. CHECKs num_threads >= 1.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;

  // Calls body(index, thread) once for each index in [0, count), thread in [0, num_threads);
  // indices are handed out in rising order, as threads become free. Returns when all are done;
  // what they wrote is visible to the caller.
  void ParallelFor(int64_t count, absl::FunctionRef<void(int64_t index, int thread)> body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem
