#pragma once

#include <utility>

#include "router/cluster/cluster.h"
#include "router/ledger/request_ledger.h"

namespace tandem {

// The load that this router charges a worker with on behalf of one request, in the cluster's view
// and in the ledger; given back on destruction. Thread: the router's loop.
class LoadCharge {
 public:
  LoadCharge() = default;
  // `cluster` and `ledger` outlive the charge.
  LoadCharge(Cluster& cluster, RequestLedger& ledger, WorkerId id, const RequestPart& part)
      : cluster_(&cluster), id_(std::move(id)), entry_(ledger.Add(id_, part)) {
    charge_.sequences = part.sequences;
    if (part.kind != RequestPart::Kind::kDecode) {
      charge_.prompt_tokens = part.prompt_tokens - part.cached_tokens;
    }
    cluster_->Charge(id_, charge_);
  }
  ~LoadCharge() { Reset(); }
  LoadCharge(const LoadCharge&) = delete;
  LoadCharge& operator=(LoadCharge&& other) noexcept {
    Reset();
    cluster_ = other.cluster_;
    id_ = std::move(other.id_);
    charge_ = std::exchange(other.charge_, {});
    entry_ = std::move(other.entry_);
    return *this;
  }

  // The decode worker has reserved blocks, so the prompt is now sent to this prefill worker.
  void Send() { entry_.Send(); }
  // The worker sent tokens, so it has computed the prompt.
  void AddTokens(int32_t tokens) {
    GiveBack({.sequences = 0, .prompt_tokens = std::exchange(charge_.prompt_tokens, 0)});
    entry_.AddTokens(tokens);
  }
  // One of the request's sequences ended.
  void EndSequence() { entry_.EndSequence(); }
  const WorkerId& worker() const { return id_; }
  const WorkerCharge& charge() const { return charge_; }
  const PartInFlight* part() const { return entry_.part(); }
  void Reset() {
    GiveBack(std::exchange(charge_, {}));
    entry_.Reset();
  }

 private:
  void GiveBack(const WorkerCharge& charge) {
    if (!charge.empty()) cluster_->Discharge(id_, charge);
  }

  Cluster* cluster_ = nullptr;
  WorkerId id_;
  WorkerCharge charge_;
  RequestLedger::Entry entry_;
};

}  // namespace tandem
