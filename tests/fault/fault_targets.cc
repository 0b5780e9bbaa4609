// Which worker a fault is done to: the one that has the request.

#include "tests/fault/fault_targets.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/fault/event_runner.h"
#include "tests/fault/running_event.h"
#include "tests/fault/socket_owner.h"
#include "tests/support/test_cluster.h"

namespace tandem {
namespace {

// What is at a worker.
int64_t BusyWith(const v1::WorkerStatus& worker) {
  const v1::HandoffUse& handoffs = worker.load().handoffs();
  return worker.load().running() + worker.load().waiting() + handoffs.sending() +
         handoffs.reservations() + handoffs.waiting_reservations();
}

// What grows by one when a worker is given a request, and does not fall when it has done its part.
int64_t Given(const v1::WorkerStatus& worker, const FaultRow& row) {
  const v1::HandoffUse& handoffs = worker.load().handoffs();
  if (row.moment == Moment::kWaiting) return handoffs.waiting_reservations();
  switch (row.target) {
    case FaultTarget::kPrefill:
      return static_cast<int64_t>(handoffs.sent()) + handoffs.sending();
    case FaultTarget::kDecode:
      return static_cast<int64_t>(handoffs.received()) + handoffs.reservations();
    default:
      return static_cast<int64_t>(worker.load().requests_finished()) + worker.load().running() +
             worker.load().waiting();
  }
}

}  // namespace

int64_t Grown(const v1::GetStatusResponse& before, const v1::GetStatusResponse& now,
              const std::string& name, const FaultRow& row) {
  const v1::WorkerStatus* was = FindWorker(before, name);
  const v1::WorkerStatus* is = FindWorker(now, name);
  return was == nullptr || is == nullptr ? 0 : Given(*is, row) - Given(*was, row);
}

FleetMember* EventRunner::Choose(const Running& running, size_t proxy, uint16_t sender_port) const {
  const std::vector<FleetMember*> members = fleet_.members(running.event.row.target);
  if (running.event.row.target == FaultTarget::kDecode) return members[proxy];
  for (FleetMember* member : members) {
    if (OwnsSocket(member->pid(), sender_port)) return member;
  }
  return nullptr;
}

FleetMember* EventRunner::ChooseIdle(const Running& running) const {
  const auto status = fleet_.status().latest();
  for (FleetMember* member : fleet_.members(running.event.row.target)) {
    const v1::WorkerStatus* worker = FindWorker(*status, member->name());
    if (worker != nullptr && BusyWith(*worker) == 0) return member;
  }
  return nullptr;
}

// A frame of it tells; else a worker that was given something since it was sent; else, while those
// that were given it do not report, the one that had the least to do: the router's rule.
FleetMember* EventRunner::Choose(const Running& running) const {
  const FaultRow& row = running.event.row;
  const auto way = desk_.WayOf(running.ticket);
  if (way && row.target != FaultTarget::kUnified) {
    return Choose(running, way->proxy, way->sender_port);
  }
  const auto status = fleet_.status().latest();
  const std::vector<FleetMember*> members = fleet_.members(row.target);
  const auto grown = [&](const FleetMember* member) {
    return Grown(*running.before, *status, member->name(), row);
  };
  FleetMember* const most = *std::ranges::max_element(members, {}, grown);
  if (grown(most) > 0) return most;
  if (row.moment == Moment::kWaiting) return nullptr;
  return *std::ranges::min_element(members, {}, [&](const FleetMember* member) {
    const v1::WorkerStatus* worker = FindWorker(*running.before, member->name());
    return worker == nullptr ? std::numeric_limits<int64_t>::max() : BusyWith(*worker);
  });
}

}  // namespace tandem
