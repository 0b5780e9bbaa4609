#pragma once

#include <list>

#include "base/clock.h"
#include "router/cluster/worker_view.h"
#include "router/ledger/arrival_meter.h"
#include "router/ledger/request_part.h"

namespace tandem {

// The work of one worker as a router knows it: its own requests, each of them, up to the moment; and
// what other routers have there, as totals from the worker's report.
//
// A worker says nothing of a prompt until it is computed. But a step that samples tokens of others
// gives what is left of its token budget to the prompts that wait, first come, first served, and these
// tokens show that it has ended. So the ledger knows how far the prompts are.
// Thread: the router's loop.
class WorkerLedger {
 public:
  using Position = std::list<PartInFlight>::iterator;

  Position Add(const PartInFlight& part);
  // A part that awaited room is sent to the worker at `now`.
  void Send(Position position, TimePoint now);
  // The worker sent `tokens` tokens of the part, at `now`.
  void AddTokens(Position position, int32_t tokens, TimePoint now);
  // One of the part's sequences ended.
  void EndSequence(Position position);
  void Remove(Position position);

  // Takes the worker's report. What it has beyond this router's own requests belongs to other
  // routers. A report and the events of requests cross on their way, so only what two reports in a
  // row agree on is taken to be there.
  void OnReport(const WorkerView& worker);

  // The parts in flight, in the order in which they were sent, or are likely to be.
  const std::list<PartInFlight>& parts() const { return parts_; }
  const WorkerDemand& own() const { return own_; }
  const WorkerDemand& others() const { return others_; }
  // The arrivals of the requests that this router sends to the worker, averaged over ten seconds.
  const ArrivalMeter& arrivals() const { return arrivals_; }
  // The arrivals of the requests that this router sends to the worker, averaged over a minute.
  const ArrivalMeter& usual_arrivals() const { return usual_arrivals_; }
  // When the worker last sent a token, which it does at the end of a step.
  TimePoint latest_event() const { return latest_event_; }

 private:
  void StartIfIdle(TimePoint now);
  // Counts the rest of a prompt whose first token has come as computed.
  void TakeRest(PartInFlight& part, TimePoint now);
  // Notices the ends of steps from tokens of `part`.
  void FollowSteps(PartInFlight& part, int32_t tokens, TimePoint now);
  void EndStep(TimePoint now);
  void BeginStep(TimePoint now);

  std::list<PartInFlight> parts_;
  WorkerDemand own_;
  WorkerDemand others_;
  WorkerDemand latest_excess_;  // what the latest report has beyond own_
  ArrivalMeter arrivals_{10};
  ArrivalMeter usual_arrivals_{60};
  TimePoint latest_report_{};
  TimePoint latest_event_{};
  int32_t max_step_tokens_ = 0;  // as the worker has reported; 0: it has not reported it
  // The worker's step in progress: its number, when it began, and how many tokens of its budget
  // went to prompts whose first token has come.
  uint64_t step_ = 1;
  TimePoint step_began_{};
  int64_t taken_tokens_ = 0;
};

}  // namespace tandem
