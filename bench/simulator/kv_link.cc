#include "bench/simulator/kv_link.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace tandem::simulator {

double KvLink::Pace() const { return model_.Share(streams()) / model_.bytes_per_second; }

void KvLink::Advance() {
  const TimePoint now = timeline_.Now();
  if (!sending_.empty()) progress_ms_ += ToMilliseconds(now - advanced_) * Pace();
  advanced_ = now;
}

void KvLink::Send(const Transfer& transfer, std::function<void()> done) {
  Advance();
  if (sending_.empty()) progress_ms_ = 0;  // keeps the sum exact over long runs
  const ModelTime alone = model_.Transfer(transfer.bytes, transfer.operations, 1);
  const ModelTime exposed = ExposedTransfer(alone, transfer.prefill, transfer.units);
  sending_.emplace(progress_ms_ + std::max(0.0, exposed.count()), std::move(done));
  Await();
}

void KvLink::Await() {
  const uint64_t number = ++awaited_;
  if (sending_.empty()) return;
  const double left_ms = std::max(0.0, sending_.begin()->first - progress_ms_) / Pace();
  timeline_.After(Duration(std::llround(std::ceil(left_ms * 1e6))), [this, number] {
    if (number != awaited_) return;
    Advance();
    const auto first = sending_.begin();
    const std::function<void()> done = std::move(first->second);
    progress_ms_ = std::max(progress_ms_, first->first);
    sending_.erase(first);
    Await();
    done();
  });
}

}  // namespace tandem::simulator
