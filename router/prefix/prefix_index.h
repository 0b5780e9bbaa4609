#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "router/cluster/cluster_view.h"
#include "router/prefix/aging_set.h"
#include "router/prefix/prompt_hashes.h"
#include "router/prefix/worker_hit.h"
#include "tandem/v1/cluster.pb.h"
#include "tandem/v1/telemetry.pb.h"

namespace tandem {

// Which blocks each worker has cached, as the workers report it with their heartbeats, and which
// prompts are being computed there and will be cached soon. It predicts how much of a prompt a
// worker need not compute. A prediction may be wrong, because reports are late and hashes that do
// not fit into the memory are forgotten; nothing but the placement of requests depends on it.
//
// A lookup costs the logarithm of the prompt's blocks for each worker that has its beginning, and
// one probe for each other worker.
// Thread-safe: heartbeats arrive on threads of gRPC, requests are on the router's loop.
class PrefixIndex {
 public:
  // The most changes in one report: so few that applying it holds the lock for a fraction of a
  // millisecond.
  static constexpr uint32_t kMostChanges = 4096;
  // The most prompts that a worker computes at a time, as far as predictions know.
  static constexpr size_t kMostExpected = 64;

  // max_bytes: of the reported hashes; the workers get equal shares.
  explicit PrefixIndex(size_t max_bytes) : max_bytes_(max_bytes) {}
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  // Checks a report. INVALID_ARGUMENT for one that no worker sends: without a number, or with more
  // changes than `most`.
  static absl::Status Check(const v1::CacheChanges& report, size_t most);
  // Applies a report that passed Check, of a worker with a lease. One that continues another report
  // than the latest is not applied. Returns the number of the latest report that was applied.
  uint64_t Apply(const WorkerId& worker, const v1::CacheChanges& report);
  // The number of the latest report of this worker; 0: none is known.
  uint64_t Latest(const WorkerId& worker) const;
  // Forgets the workers that are not in `view`.
  void KeepOnly(const ClusterView& view);

  // The workers that have some of the prompt, ordered by worker.
  std::vector<WorkerHit> Find(const PromptHashes& prompt);

  struct Expectation {
    uint64_t id = 0;  // 0: the prompt was not hashed for this worker
    int32_t predicted_tokens = 0;
  };
  // `worker` is about to compute the prompt, which Find reports as cached there from now on.
  // Returns how much of it the worker was predicted to have before.
  Expectation Expect(const WorkerRef& worker, std::shared_ptr<const PromptHashes> prompt);
  // The prompt has been computed: the expectation ends once the worker has reported what it caches.
  void Fulfil(const WorkerId& worker, uint64_t id);
  // Ends an expectation that has not been fulfilled.
  void Withdraw(const WorkerId& worker, uint64_t id);

  // Compares a prediction with the actual hit: a worker has said how many tokens of a prompt it had
  // cached.
  void Record(int32_t prompt_tokens, int32_t predicted_tokens, int32_t cached_tokens);
  v1::PrefixIndexUse Use() const;

 private:
  struct Expected {
    uint64_t id = 0;
    uint64_t first_hash = 0;  // of `chain`, because almost all comparisons end there
    const PromptHashes::Chain* chain = nullptr;  // of `prompt`, in the worker's space
    std::shared_ptr<const PromptHashes> prompt;
    uint64_t lapses_at = 0;  // at this number of complete reports; 0: it is not fulfilled yet
  };
  struct Worker {
    AgingSet cached;
    std::deque<Expected> expected;
    uint64_t sequence = 0;          // the number of the latest report
    uint64_t complete_reports = 0;  // reports that no further changes followed
  };

  Worker& Get(const WorkerId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Divides the memory equally among the workers; to be called when their number changes.
  void SetShares() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The blocks of this chain that the worker will have, as far as prompts are being computed there.
  static size_t ExpectedBlocks(const Worker& worker, const PromptHashes::Chain& chain);
  // Ends the expectations of the worker for which `ends` is true.
  template <typename Predicate>
  void EndExpected(Worker& worker, const Predicate& ends) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t max_bytes_;
  mutable absl::Mutex mutex_;
  // Ordered by worker, and next to each other in memory, since each lookup visits all of them.
  absl::btree_map<WorkerId, Worker> workers_ ABSL_GUARDED_BY(mutex_);
  // By the hash of a block, how many expectations begin with it: a lookup visits the expectations
  // of the workers only where there are some.
  absl::flat_hash_map<uint64_t, uint32_t> expected_firsts_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_expectation_ ABSL_GUARDED_BY(mutex_) = 0;
  v1::PrefixIndexUse use_ ABSL_GUARDED_BY(mutex_);  // only what is counted since the start
};

}  // namespace tandem
