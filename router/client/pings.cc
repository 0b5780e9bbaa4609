#include "router/client/pings.h"

#include <algorithm>

namespace tandem {

Pings::Changes Pings::Turn(const ClusterView& view, TimePoint now, Pace pace) {
  std::erase_if(pings_, [&view](const auto& entry) {
    return !std::ranges::binary_search(view.workers, entry.first, {}, &WorkerView::id);
  });
  Changes changes;
  for (const WorkerView& worker : view.workers) {
    Ping& ping = pings_[worker.id];
    if (IsWell(ping, worker)) {
      ping.missed = 0;
      if (worker.unreachable) changes.reachable.push_back(worker.id);
    } else if (IsMissed(ping, worker, pace) && !worker.unreachable) {
      changes.unreachable.push_back(worker.id);
      workers_.Disconnect(worker.id);
    }
    Send(ping, worker, now);
  }
  return changes;
}

bool Pings::IsWell(const Ping& ping, const WorkerView& worker) {
  return ping.answer && (*ping.answer == Health::kServing || worker.leaving);
}

bool Pings::IsMissed(Ping& ping, const WorkerView& worker, Pace pace) {
  constexpr int kMostMissed = 2;
  if (ping.call == nullptr || pace == Pace::kLate || worker.last_report <= ping.sent) return false;
  return ++ping.missed >= kMostMissed;
}

void Pings::Send(Ping& ping, const WorkerView& worker, TimePoint now) {
  ping.sent = now;
  ping.answer.reset();
  ping.call = workers_.Ping(EndpointOf(worker), [&ping](Health health) { ping.answer = health; });
}

}  // namespace tandem
