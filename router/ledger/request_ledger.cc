#include "router/ledger/request_ledger.h"

#include <algorithm>

namespace tandem {

RequestLedger::Entry& RequestLedger::Entry::operator=(Entry&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  clock_ = other.clock_;
  worker_ = std::exchange(other.worker_, nullptr);
  position_ = other.position_;
  return *this;
}

void RequestLedger::Entry::Send() {
  if (worker_ != nullptr) worker_->Send(position_, clock_->Now());
}

void RequestLedger::Entry::AddTokens(int32_t tokens) {
  if (worker_ != nullptr) worker_->AddTokens(position_, tokens, clock_->Now());
}

void RequestLedger::Entry::EndSequence() {
  if (worker_ != nullptr) worker_->EndSequence(position_);
}

void RequestLedger::Entry::Reset() {
  if (worker_ != nullptr) worker_->Remove(position_);
  worker_ = nullptr;
}

RequestLedger::Entry RequestLedger::Add(const WorkerId& worker, const RequestPart& part) {
  std::shared_ptr<WorkerLedger>& known = workers_[worker];
  if (known == nullptr) known = std::make_shared<WorkerLedger>();
  PartInFlight sent{part};
  sent.sent = clock_.Now();
  sent.live_sequences = part.sequences;
  if (part.kind == RequestPart::Kind::kPrefill) sent.stage = PartInFlight::Stage::kAwaitingRoom;
  Entry entry;
  entry.clock_ = &clock_;
  entry.worker_ = known;
  entry.position_ = known->Add(sent);
  return entry;
}

void RequestLedger::OnReports(const ClusterView& view) {
  const TimePoint seen = latest_report_;
  for (const WorkerView& worker : view.workers) {
    // Skips workers without a new report. One that reported at the moment of the latest known
    // report may have a new one.
    if (worker.last_report < seen) continue;
    latest_report_ = std::max(latest_report_, worker.last_report);
    std::shared_ptr<WorkerLedger>& known = workers_[worker.id];
    if (known == nullptr) known = std::make_shared<WorkerLedger>();
    known->OnReport(worker);
  }
  if (workers_.size() == view.workers.size()) return;
  absl::erase_if(workers_, [&view](const auto& known) {
    return known.second->parts().empty() && view.Find(known.first) == nullptr;
  });
}

const WorkerLedger* RequestLedger::Find(const WorkerId& worker) const {
  const auto found = workers_.find(worker);
  return found == workers_.end() ? nullptr : found->second.get();
}

}  // namespace tandem
