#pragma once

#include <utility>

#include "router/cluster/cluster.h"

namespace tandem {

// The load that this router charges a worker with on behalf of one request; given back on
// destruction. Thread: the router's loop.
class LoadCharge {
 public:
  LoadCharge() = default;
  // `cluster` outlives the charge.
  LoadCharge(Cluster& cluster, WorkerId id, WorkerCharge charge)
      : cluster_(&cluster), id_(std::move(id)), charge_(charge) {
    cluster_->Charge(id_, charge_);
  }
  ~LoadCharge() { Reset(); }
  LoadCharge(const LoadCharge&) = delete;
  LoadCharge& operator=(LoadCharge&& other) noexcept {
    Reset();
    cluster_ = other.cluster_;
    id_ = std::move(other.id_);
    charge_ = std::exchange(other.charge_, {});
    return *this;
  }

  void Reset() { GiveBack(std::exchange(charge_, {})); }
  // The prompt has been computed.
  void GiveBackPrompt() {
    GiveBack({.sequences = 0, .prompt_tokens = std::exchange(charge_.prompt_tokens, 0)});
  }

 private:
  void GiveBack(const WorkerCharge& charge) {
    if (!charge.empty()) cluster_->Discharge(id_, charge);
  }

  Cluster* cluster_ = nullptr;
  WorkerId id_;
  WorkerCharge charge_;
};

}  // namespace tandem
