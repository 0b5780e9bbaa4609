#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "bench/serving/runner.h"
#include "bench/serving/schedule.h"
#include "bench/simulator/digest.h"
#include "bench/simulator/network.h"
#include "bench/simulator/timeline.h"
#include "router/router.h"

namespace tandem::simulator {

// The number of token ids of a simulated model.
inline constexpr int32_t kVocabulary = 1 << 16;

// The prompt of a request: equal segments give equal tokens.
std::vector<int32_t> PromptTokens(const loadgen::ScheduledRequest& request);

struct ClientOptions {
  Duration hop{};  // between a client and the router
  v1::Route route = v1::ROUTE_AUTO;
  std::span<const v1::Route> routes = {};  // an element per request; empty: `route` for all
  // Arrivals of this many tokens are kept as one; the first token has an arrival of its own.
  int32_t tokens_per_chunk = 1;
};

// The clients of a simulated router: they send a schedule in virtual time, by the rules of
// loadgen::Run, and keep the same records.
// Thread: the router's loop.
class SimulatedClients {
 public:
  struct Parts {
    Timeline& timeline;
    Router& router;
    const SimulatedNetwork& network;
    Digest& digest;
    const loadgen::Schedule& schedule;
    loadgen::RunCounts& counts;
  };
  // `parts` outlive it. The schedule is not empty.
  SimulatedClients(const Parts& parts, const loadgen::RunOptions& run,
                   const ClientOptions& options);
  ~SimulatedClients();

  void Start() { SendDue(); }
  bool done() const { return ended_ == static_cast<int64_t>(parts_.schedule.requests.size()); }
  // What came of the requests. Call once, when all are done.
  loadgen::RunResult Take();

 private:
  class Call;

  // Sends what is due, as far as there are free slots, and comes back for the rest.
  void SendDue();
  void Send(size_t index);
  void Submit(size_t index);
  void Cancel(size_t index);
  void Abandon();
  void OnEnd(size_t index);
  bool HasFreeSlot() const;

  const Parts parts_;
  const loadgen::RunOptions run_;
  const ClientOptions options_;
  loadgen::RunResult result_;
  std::vector<std::unique_ptr<Call>> calls_;  // those under way
  std::unique_ptr<Call> last_ended_;          // a call may be running when it ends
  std::vector<Duration> free_since_;          // of the slots of a limited concurrency; a queue
  size_t next_free_ = 0;                      // the slot that has been free for longest
  size_t next_freed_ = 0;                     // where the next slot that becomes free is written
  size_t next_ = 0;
  int32_t under_way_ = 0;
  int64_t ended_ = 0;
  bool waits_for_arrival_ = false;
};

}  // namespace tandem::simulator
