#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "bench/simulator/timeline.h"
#include "scheduler/latency_model/link_model.h"

namespace tandem::simulator {

// The link over which one prefill worker sends KV. What of a transfer the prefill does not hide is
// sent after it, and all transfers of the worker share the link as its LinkModel says.
// Thread: one at a time.
class KvLink {
 public:
  // `timeline` outlives it.
  KvLink(Timeline& timeline, LinkModel model) : timeline_(timeline), model_(std::move(model)) {}

  struct Transfer {
    int64_t bytes = 0;
    int64_t operations = 0;
    ModelTime prefill{};  // that has just ended and hides a part
    int32_t units = 1;    // in which prefill and transfer run: chunks times layers
  };
  // `done` is called when the last byte has arrived.
  void Send(const Transfer& transfer, std::function<void()> done);

  int32_t streams() const { return static_cast<int32_t>(sending_.size()); }

 private:
  // What one of the transfers under way gets, as a share of what it would get alone.
  double Pace() const;
  // Brings `progress_ms_` up to now.
  void Advance();
  // Waits for the next transfer to end.
  void Await();

  Timeline& timeline_;
  const LinkModel model_;
  // By the progress at which they end. Progress is the time that a transfer would have been sent
  // alone; it is the same for all, because they share the link evenly.
  std::multimap<double, std::function<void()>> sending_;
  double progress_ms_ = 0;
  TimePoint advanced_{};
  uint64_t awaited_ = 0;  // number of the event that is awaited; earlier ones are void
};

}  // namespace tandem::simulator
