#include "bench/simulator/worker_store.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tandem::simulator {

int32_t WorkerStore::BlocksToReach(SequenceId id, int32_t end) const {
  if (id == planned_) return planned_blocks_;
  const SimulatedSequence& sequence = Get(id);
  if (sequence.admitted) return std::max(0, kv_.BlocksFor(end) - sequence.kv.blocks());
  // A prompt whose KV is sent while it is computed takes all of its blocks on admission.
  if (sequence.target) end = KnownTokens(sequence);
  const KvCounts::Match match = kv_.Find(sequence.key.hashes(), KnownTokens(sequence) - 1);
  return std::max(0, kv_.BlocksFor(end) - match.blocks) + match.idle_blocks;
}

int32_t WorkerStore::BlocksFreedBy(SequenceId id) const {
  const SimulatedSequence& sequence = Get(id);
  return kv_.FreedBy(sequence.kv);
}

CachedPrefix WorkerStore::Prefix(SequenceId id) const {
  const SimulatedSequence& sequence = Get(id);
  const KvCounts::Match match = kv_.Find(sequence.key.hashes(), KnownTokens(sequence) - 1);
  return {.device_tokens = match.blocks * kv_.block_tokens(), .pending = match.pending};
}

SimulatedSequence& WorkerStore::Add(std::unique_ptr<SimulatedSequence> sequence) {
  const SequenceId id = sequence->id;
  if (id == planned_) planned_ = {};
  return *sequences_.emplace(id, std::move(sequence)).first->second;
}

SimulatedSequence* WorkerStore::Find(SequenceId id) const {
  const auto place = sequences_.find(id);
  return place == sequences_.end() ? nullptr : place->second.get();
}

SimulatedSequence& WorkerStore::Get(SequenceId id) const {
  SimulatedSequence* const found = Find(id);
  TANDEM_CHECK(found != nullptr, "the scheduler asks about a sequence that has ended");
  return *found;
}

void WorkerStore::Rename(SimulatedSequence& sequence, SequenceId id) {
  const auto place = sequences_.find(sequence.id);
  std::unique_ptr<SimulatedSequence> moved = std::move(place->second);
  sequences_.erase(place);
  moved->id = id;
  sequences_.emplace(id, std::move(moved));
}

void WorkerStore::Remove(SequenceId id) {
  const auto place = sequences_.find(id);
  if (place == sequences_.end()) return;
  Release(*place->second);
  sequences_.erase(place);
}

void WorkerStore::SetExpected(SimulatedSequence& sequence, std::optional<uint64_t> hash) {
  if (sequence.expected == hash) return;
  if (sequence.expected) kv_.Unexpect(*sequence.expected);
  if (hash) kv_.Expect(*hash);
  sequence.expected = hash;
}

void WorkerStore::Attach(SimulatedSequence& sequence, int32_t cached_tokens) {
  kv_.Attach(sequence.key.hashes(), cached_tokens / kv_.block_tokens(), sequence.kv);
  kv_.CountQuery(sequence.prompt_tokens, cached_tokens);
  sequence.admitted = true;
}

void WorkerStore::Reserve(SimulatedSequence& sequence, int32_t cached_tokens) {
  Attach(sequence, cached_tokens);
  Grow(sequence, sequence.prompt_tokens);
}

void WorkerStore::Admit(SimulatedSequence& sequence, int32_t cached_tokens) {
  Attach(sequence, cached_tokens);
  Computed(sequence, cached_tokens, true);
}

void WorkerStore::Grow(SimulatedSequence& sequence, int64_t tokens) {
  kv_.Grow(sequence.kv, kv_.BlocksFor(tokens));
}

void WorkerStore::Computed(SimulatedSequence& sequence, int32_t computed, bool more_follows) {
  const std::span<const uint64_t> hashes = sequence.key.hashes();
  kv_.Insert(hashes, computed, sequence.kv);
  const size_t next = sequence.kv.cached.size();
  const bool expects = more_follows && next < hashes.size();
  SetExpected(sequence, expects ? std::optional<uint64_t>(hashes[next]) : std::nullopt);
}

void WorkerStore::Release(SimulatedSequence& sequence) {
  SetExpected(sequence, std::nullopt);
  kv_.Free(sequence.kv);
  sequence.admitted = false;
}

int32_t WorkerStore::PlanReservation(SequenceId id, const PrefixKey& key, int32_t prompt_tokens) {
  const KvCounts::Match match = kv_.Find(key.hashes(), prompt_tokens);
  planned_ = id;
  planned_blocks_ = kv_.BlocksFor(prompt_tokens) - match.blocks + match.idle_blocks;
  return match.blocks * kv_.block_tokens();
}

}  // namespace tandem::simulator
