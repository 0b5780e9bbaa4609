#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "router/cluster/cluster_view.h"
#include "router/ledger/worker_ledger.h"

namespace tandem {

// What this router has in flight at every worker. Its own requests are exact up to the latest
// event, while a worker's report is late by up to a heartbeat. The cost of an event does not depend
// on how much is in flight; only the end of a step while prompts wait visits the requests of its
// worker, until its token budget is spent. Thread: the router's loop.
class RequestLedger {
 public:
  explicit RequestLedger(const Clock& clock) : clock_(clock) {}

  // One part of one request at one worker, until it is destroyed or Reset. A default Entry has no
  // part, and its calls do nothing.
  class Entry {
   public:
    Entry() = default;
    ~Entry() { Reset(); }
    Entry(Entry&& other) noexcept { *this = std::move(other); }
    Entry& operator=(Entry&& other) noexcept;

    // The decode worker has reserved blocks, so the prompt is now sent to its prefill worker.
    void Send();
    void AddTokens(int32_t tokens);
    void EndSequence();
    void Reset();
    // The part in the ledger; null where there is none. Valid until Reset.
    const PartInFlight* part() const { return worker_ == nullptr ? nullptr : &*position_; }

   private:
    friend RequestLedger;
    const Clock* clock_ = nullptr;
    std::shared_ptr<WorkerLedger> worker_;  // null: there is no part
    WorkerLedger::Position position_;
  };

  Entry Add(const WorkerId& worker, const RequestPart& part);

  // Takes the reports that are new since the last call, and forgets workers that have gone.
  void OnReports(const ClusterView& view);

  // The ledger of a worker; null where it has neither requests of this router nor a report.
  const WorkerLedger* Find(const WorkerId& worker) const;
  TimePoint Now() const { return clock_.Now(); }

 private:
  const Clock& clock_;
  TimePoint latest_report_{};  // of any worker, as far as OnReports has seen
  // Entries share the ledgers of workers, because a worker may go before its requests.
  absl::flat_hash_map<WorkerId, std::shared_ptr<WorkerLedger>> workers_;
};

}  // namespace tandem
