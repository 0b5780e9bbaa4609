#include "engine/handoff/codec_workers.h"

#include <utility>

#include "base/thread_name.h"

namespace tandem {

CodecWorkers::CodecWorkers(int32_t num_threads) {
  for (int32_t i = 0; i < num_threads; ++i) threads_.emplace_back([this] { Run(); });
}

CodecWorkers::~CodecWorkers() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void CodecWorkers::Queue(std::function<void()> job) {
  absl::MutexLock lock(&mutex_);
  jobs_.push_back(std::move(job));
}

void CodecWorkers::Run() {
  NameThisThread("kv-codec");
  while (true) {
    std::function<void()> job;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &CodecWorkers::has_work));
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

}  // namespace tandem
