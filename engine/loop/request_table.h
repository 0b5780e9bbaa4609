#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/ids.h"
#include "engine/handoff/receiver.h"
#include "engine/handoff/sender.h"
#include "engine/loop/host_copies.h"
#include "engine/output_stream.h"
#include "engine/sequence.h"
#include "kvstore/kv_store.h"
#include "scheduler/scheduler.h"

namespace tandem {

// The status of requests and reservations that arrive while the engine shuts down.
absl::Status ShuttingDown();

// All requests in the engine and their sequences. A request enters by Add and leaves by End alone,
// which frees what it holds and finishes its stream.
// Thread: engine. Everything that the constructor takes must outlive it.
class RequestTable {
 public:
  struct Parts {
    Scheduler& scheduler;
    KvStore& store;
    HostCopies& copies;
    KvSender& sender;
    KvReceiver& receiver;
    std::function<void()> publish;  // makes the engine's stats visible to other threads
  };
  explicit RequestTable(Parts parts) : parts_(std::move(parts)) {}

  // INVALID_ARGUMENT when a request with this id is in the table.
  absl::Status CheckNew(RequestId id) const;
  RequestState& Add(std::unique_ptr<RequestState> request);

  SequenceId NewSequenceId() { return SequenceId(next_sequence_++); }
  // Adds a sequence to the request, with the prompt's tokens and no blocks.
  Sequence& AddSequence(RequestState& request, SequenceId id);
  // Adds a sequence for choice `index` that shares all blocks of `root`, which has one row.
  Sequence& AddFork(Sequence& root, int32_t index);
  // Removes a sequence that has ended, and frees its blocks.
  void Remove(Sequence& sequence);

  // Null for a request or sequence that is unknown or has ended.
  RequestState* Find(RequestId id);
  Sequence* Find(SequenceId id);
  // CHECKs that the sequence or request exists.
  Sequence& Get(SequenceId id);
  RequestState& Get(RequestId id);

  // Ends a request. With an OK status, FinishInfo::reason says why it ended.
  void End(RequestState& request, const absl::Status& status) { End(request, {.status = status}); }
  void End(RequestState& request, FinishInfo info);
  void EndAll(const absl::Status& status);

  bool empty() const { return requests_.empty(); }
  size_t num_sequences() const { return sequences_.size(); }
  // The internal fragmentation of the KV pool: the share of the slots in the sequences' blocks that
  // lie behind their last token.
  double Fragmentation() const;
  uint64_t num_accepted() const { return num_accepted_; }
  uint64_t num_finished() const { return num_finished_; }

 private:
  Sequence& AddSequence(RequestState& request, SequenceId id, PrefixKey key);

  const Parts parts_;
  absl::flat_hash_map<RequestId, std::unique_ptr<RequestState>> requests_;
  absl::flat_hash_map<SequenceId, std::unique_ptr<Sequence>> sequences_;
  uint64_t next_sequence_ = 1;
  uint64_t num_accepted_ = 0;
  uint64_t num_finished_ = 0;
};

}  // namespace tandem
