#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "router/cluster/worker_costs.h"
#include "tandem/v1/cluster.pb.h"

namespace tandem {

// One life of one worker: a restarted worker keeps its name and gets a new incarnation.
struct WorkerId {
  std::string name;
  uint64_t incarnation = 0;

  friend auto operator<=>(const WorkerId&, const WorkerId&) = default;
  template <typename Hash>
  friend Hash AbslHashValue(Hash hash, const WorkerId& id) {
    return Hash::combine(std::move(hash), id.name, id.incarnation);
  }
};

// What a worker says when it registers. It stays the same until the worker registers again.
struct WorkerInfo {
  std::string address;  // host:port of its Worker service
  std::string device;   // the device that it computes on: "cpu", "cuda:0"
  int32_t pid = 0;
  int32_t max_context_tokens = 0;
  uint64_t model_fingerprint = 0;
  v1::KvLayout layout;
  std::string data_address;  // where KV arrives; empty: the worker receives none
  int32_t wire_version = 0;  // of the frames that carry KV
  uint64_t prefix_root = 0;  // of the hashes of its cached blocks; 0: it keeps no prefix cache
  // The limits of the worker's scheduler; 0 where the worker did not say.
  int32_t max_step_tokens = 0;
  int32_t max_sequences = 0;
};

// A worker as requests need to know it: cheap to copy, and valid after the worker has gone.
struct WorkerRef {
  WorkerId id;
  v1::WorkerRole role = v1::WORKER_ROLE_UNSPECIFIED;
  std::shared_ptr<const WorkerInfo> info = std::make_shared<const WorkerInfo>();
};

// What one request adds to a worker's load.
struct WorkerCharge {
  int32_t sequences = 0;
  int64_t prompt_tokens = 0;  // tokens of prompts that the worker has yet to prefill

  bool empty() const { return sequences == 0 && prompt_tokens == 0; }
};

// A worker's report, which is shared by all views. What every decision reads of every worker is
// copied out of the message, whose fields are spread over the memory.
class LoadReport {
 public:
  LoadReport() : LoadReport(std::make_shared<const v1::WorkerLoad>()) {}
  LoadReport(std::shared_ptr<const v1::WorkerLoad> message);

  const v1::WorkerLoad* operator->() const { return message_.get(); }
  const v1::WorkerLoad& operator*() const { return *message_; }
  friend bool operator==(const LoadReport& a, const LoadReport& b) {
    return a.message_ == b.message_;
  }

  int32_t sequences() const { return sequences_; }  // running and waiting
  int64_t waiting_prompt_tokens() const { return waiting_prompt_tokens_; }
  // Blocks that new sequences can have: free ones, and cached ones that no sequence holds.
  int32_t available_blocks() const { return available_blocks_; }
  bool ready() const { return ready_; }
  bool starting() const { return starting_; }

 private:
  std::shared_ptr<const v1::WorkerLoad> message_;
  int32_t sequences_;
  int32_t available_blocks_;
  int64_t waiting_prompt_tokens_;
  bool ready_;
  bool starting_;
};

// One worker at one moment, as this router sees it.
struct WorkerView : WorkerRef {
  LoadReport load;
  // The costs in `load`, by which the time of steps is predicted; null until the worker has
  // measured some.
  std::shared_ptr<const WorkerCosts> costs;
  WorkerCharge charged;
  TimePoint last_report;
  // A call failed to reach the worker, and no heartbeat has arrived since.
  bool suspected = false;
  // Heartbeats of the worker arrive, but it does not answer this router's pings
  // (router/client/pings.h).
  bool unreachable = false;
  // The time until which requests prefer other workers, because a hand-off to this one failed.
  TimePoint avoided_until{};
  bool leaving = false;     // the worker finishes its requests and takes no new ones
  bool name_taken = false;  // a younger process has registered under the name of a leaving worker

  // Whether the worker may be sent anything.
  bool usable() const { return !suspected && !unreachable && !leaving && load.ready(); }

  // The larger of what the worker reported and what this router has charged it with: the report is
  // late by up to a heartbeat, and other routers send work too.
  int32_t Sequences() const;
  int64_t PendingPromptTokens() const;
  int32_t AvailableBlocks() const { return load.available_blocks(); }
};

// The name of a role: "unified", "prefill", "decode".
std::string_view Name(v1::WorkerRole role);

// The role and name of a worker for messages, such as "decode worker d0".
std::string RoleAndName(const WorkerRef& worker);

}  // namespace tandem
