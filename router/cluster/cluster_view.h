#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "tandem/v1/cluster.pb.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// One life of one worker: a restarted worker keeps its name and gets a new incarnation.
struct WorkerId {
  std::string name;
  uint64_t incarnation = 0;

  friend auto operator<=>(const WorkerId&, const WorkerId&) = default;
};

// What one request adds to a worker's load.
struct WorkerCharge {
  int32_t sequences = 0;
  int64_t prompt_tokens = 0;  // to be prefilled there
};

struct WorkerView {
  WorkerId id;
  v1::WorkerRole role = v1::WORKER_ROLE_UNSPECIFIED;
  std::string address;  // host:port of its Worker service
  std::string device;   // that it computes on
  int32_t pid = 0;
  int32_t max_context_tokens = 0;
  uint64_t model_fingerprint = 0;
  v1::KvLayout layout;
  std::string data_address;  // where KV arrives; empty: it takes none
  int32_t wire_version = 0;  // of the frames
  v1::WorkerLoad load;       // as last reported
  WorkerCharge charged;
  TimePoint last_heard;
  bool suspected = false;  // a call failed to reach it, and nothing was heard of it since
  // It is heard of, but leaves this router's pings unanswered (router/cluster/pings.h).
  bool unreachable = false;
  TimePoint avoided_until{};  // a hand-off to it failed of late: others are taken before it
  bool leaving = false;       // it ends what it has and takes nothing new
  bool name_taken = false;    // meanwhile, by a younger life

  // Whether it may be sent anything.
  bool usable() const { return !suspected && !unreachable && !leaving && load.not_ready().empty(); }

  // The larger of what the worker reported and what this router knows that it sent there: the
  // report is late by up to a heartbeat, and other routers send work too.
  int32_t Sequences() const;
  int64_t PendingPromptTokens() const;
  // Blocks that new sequences can have: free ones, and cached ones that nobody holds.
  int32_t AvailableBlocks() const;
};

// All workers with a lease at one moment, in the order of their names, then of their incarnations:
// a value, never changed once published. Of one name all but the last are leaving (name_taken).
struct ClusterView {
  std::vector<WorkerView> workers;

  bool HasUsable(v1::WorkerRole role) const;
  // The decode workers that a prefill worker may send KV to.
  std::vector<v1::KvPeer> KvPeersOf(const WorkerView& prefill) const;
  // The routes that could be taken now.
  std::vector<v1::Route> Routes() const;
  // Prompt and output together, of the longest request that the usable workers can take on this
  // route; 0 when they cannot take it.
  int32_t MaxContextTokens(v1::Route route) const;
};

// "unified", "prefill", "decode".
std::string_view Name(v1::WorkerRole role);

}  // namespace tandem
