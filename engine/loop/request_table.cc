#include "engine/loop/request_table.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace tandem {

absl::Status ShuttingDown() { return Unavailable("this worker is shutting down: retry elsewhere"); }

absl::Status RequestTable::CheckNew(RequestId id) const {
  if (!requests_.contains(id)) return absl::OkStatus();
  return InvalidArgument("request id {} is in use: ids must be unique", id);
}

RequestState& RequestTable::Add(std::unique_ptr<RequestState> request) {
  ++num_accepted_;
  const RequestId id = request->spec.id;
  return *requests_.emplace(id, std::move(request)).first->second;
}

Sequence& RequestTable::AddSequence(RequestState& request, SequenceId id) {
  return AddSequence(request, id, parts_.store.NewKey(request.spec.cache_salt));
}

Sequence& RequestTable::AddFork(Sequence& root, int32_t index) {
  Sequence& fork = AddSequence(root.request, NewSequenceId(), root.key);
  fork.index = index;
  fork.evicted_tokens = root.evicted_tokens;
  fork.late_tokens = root.late_tokens;
  fork.tables.push_back(root.tables.front().Fork());
  return fork;
}

Sequence& RequestTable::AddSequence(RequestState& request, SequenceId id, PrefixKey key) {
  auto sequence = std::make_unique<Sequence>(id, request, std::move(key));
  sequence->seed = request.spec.sampling.seed;
  sequence->rows.push_back({.tokens = request.spec.prompt});
  sequence->key.Extend(request.spec.prompt);
  request.sequences.push_back(id);
  return *sequences_.emplace(id, std::move(sequence)).first->second;
}

void RequestTable::Remove(Sequence& sequence) {
  parts_.scheduler.Finish(sequence.id);
  parts_.store.Unexpect(sequence.id);
  parts_.copies.Drop(sequence);
  std::erase(sequence.request.sequences, sequence.id);
  sequences_.erase(sequence.id);
}

RequestState* RequestTable::Find(RequestId id) {
  const auto place = requests_.find(id);
  return place == requests_.end() ? nullptr : place->second.get();
}

Sequence* RequestTable::Find(SequenceId id) {
  const auto place = sequences_.find(id);
  return place == sequences_.end() ? nullptr : place->second.get();
}

RequestState& RequestTable::Get(RequestId id) {
  RequestState* const request = Find(id);
  TANDEM_CHECK(request != nullptr, "a request that was taken to exist has ended");
  return *request;
}

Sequence& RequestTable::Get(SequenceId id) {
  Sequence* const sequence = Find(id);
  TANDEM_CHECK(sequence != nullptr, "a sequence that was taken to exist has ended");
  return *sequence;
}

// Everything is freed, counted and published before the client learns of the end, so that its next
// request finds the engine in that state.
void RequestTable::End(RequestState& request, FinishInfo info) {
  if (OutgoingKv* outgoing = request.outgoing()) parts_.sender.Abort(*outgoing);
  if (request.awaiting()) parts_.receiver.Release(*request.awaiting());
  while (!request.sequences.empty()) Remove(Get(request.sequences.back()));
  ++num_finished_;
  info.stages = request.stages;
  info.cached_tokens = request.counts.cached_tokens;
  if (const IncomingKv* incoming = request.incoming()) {
    info.kv.raw_bytes = incoming->received_bytes;
    info.kv.hidden_bytes = incoming->hidden_bytes;
  }
  info.preemptions = request.counts.preemptions;
  info.evicted_tokens = request.counts.evicted_tokens;
  OutputStream stream = std::move(request.stream);
  requests_.erase(request.spec.id);
  parts_.publish();
  stream.Finish(info);
}

void RequestTable::EndAll(const absl::Status& status) {
  while (!requests_.empty()) End(*requests_.begin()->second, status);
}

double RequestTable::Fragmentation() const {
  int64_t slots = 0;
  int64_t empty = 0;
  for (const auto& [id, sequence] : sequences_) {
    for (const BlockTable& table : sequence->tables) {
      slots += table.capacity_tokens();
      empty += std::max<int64_t>(0, table.capacity_tokens() - sequence->num_slots());
    }
  }
  return slots == 0 ? 0 : static_cast<double>(empty) / static_cast<double>(slots);
}

}  // namespace tandem
