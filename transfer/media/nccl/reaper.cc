#include "transfer/media/nccl/reaper.h"

#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "base/thread_name.h"

namespace tandem {

NcclReaper::NcclReaper(std::chrono::milliseconds patience)
    : patience_(patience), thread_([state = state_] { Run(state); }) {}

NcclReaper::~NcclReaper() {
  bool stopped = false;
  {
    absl::MutexLock lock(&state_->mutex);
    state_->stopping = true;
    state_->changed.Signal();
    const auto has_stopped = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return state_->stopped; };
    stopped = state_->changed.AwaitFor(state_->mutex, patience_, has_stopped);
  }
  if (stopped) {
    thread_.join();
  } else {
    LogError("nccl abort does not return: its communicator and memory are left as they are");
    thread_.detach();
  }
}

void NcclReaper::End(NcclConnection connection) {
  absl::MutexLock lock(&state_->mutex);
  state_->connections.push_back(std::move(connection));
  state_->changed.Signal();
}

absl::Status NcclReaper::health() const {
  absl::MutexLock lock(&state_->mutex);
  if (state_->abort_began == kNoDeadline) return absl::OkStatus();
  const Duration took = std::chrono::steady_clock::now() - state_->abort_began;
  if (took <= patience_) return absl::OkStatus();
  return Unavailable("an abort of an NCCL communicator has taken {:.0f} s: restart this worker",
                     ToMilliseconds(took) / 1e3);
}

size_t NcclReaper::waiting() const {
  absl::MutexLock lock(&state_->mutex);
  return state_->connections.size() + (state_->abort_began != kNoDeadline ? 1 : 0);
}

void NcclReaper::Run(const std::shared_ptr<State>& state) {
  NameThisThread("nccl-reaper");
  while (std::optional<NcclConnection> ending = TakeOne(*state)) {
    ending.reset();
    absl::MutexLock lock(&state->mutex);
    state->abort_began = kNoDeadline;
  }
}

std::optional<NcclConnection> NcclReaper::TakeOne(State& state) {
  absl::MutexLock lock(&state.mutex);
  const auto has_work = [&state]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return !state.connections.empty() || state.stopping;
  };
  state.changed.AwaitUntil(state.mutex, kNoDeadline, has_work);
  if (state.connections.empty()) {
    state.stopped = true;
    state.changed.Signal();
    return std::nullopt;
  }
  std::optional<NcclConnection> first = std::move(state.connections.front());
  state.connections.pop_front();
  state.abort_began = std::chrono::steady_clock::now();
  return first;
}

}  // namespace tandem
