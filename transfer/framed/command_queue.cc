#include "transfer/framed/command_queue.h"

#include <unistd.h>

namespace tandem {
namespace {

bool CanWaitForNextTurn(const StreamCommand& command) {
  const auto* open = std::get_if<OpenCommand>(&command);
  return open != nullptr && open->renew_every >= kLongestSleep;
}

}  // namespace

void CommandQueue::Push(StreamCommand command) {
  {
    absl::MutexLock lock(&mutex_);
    const bool can_wait = CanWaitForNextTurn(command);
    commands_.push_back(std::move(command));
    if (can_wait || !std::exchange(asleep_, false)) return;
  }
  Wake();
}

void CommandQueue::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  Wake();
}

std::vector<StreamCommand> CommandQueue::TakeAll() {
  absl::MutexLock lock(&mutex_);
  asleep_ = false;
  return std::exchange(commands_, {});
}

bool CommandQueue::FallAsleep() {
  absl::MutexLock lock(&mutex_);
  asleep_ = commands_.empty();
  return asleep_;
}

bool CommandQueue::stopping() const {
  absl::MutexLock lock(&mutex_);
  return stopping_;
}

void CommandQueue::Wake() const {
  const uint64_t one = 1;
  // Writing to the eventfd fails only when its counter is full: then the loop has been woken
  // already.
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
}

void CommandQueue::ClearWake() const {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t cleared = read(wake_.get(), &count, sizeof(count));
}

}  // namespace tandem
