#include "bench/simulator/kv_sender.h"

#include <algorithm>

#include "base/status.h"

namespace tandem::simulator {
namespace {

int32_t TokensToSend(const SimulatedSequence& sequence) {
  return std::max(0, sequence.prompt_tokens - sequence.target->cached_tokens);
}

}  // namespace

void SimulatedSender::Send(SimulatedSequence& sequence) {
  WorkerCore& core = parts_.core;
  const KvLayout& layout = core.config.model->layout;
  const int32_t tokens = TokensToSend(sequence);
  const int64_t bytes = tokens * layout.BytesPerToken();
  core.scheduler.Park(sequence.id);
  core.counts.kv_bytes_sent += static_cast<uint64_t>(bytes);
  core.Note(Happening::kTransfer, {static_cast<uint64_t>(bytes)});
  link_.Send({.bytes = bytes,
              .operations = int64_t{layout.BlocksFor(tokens)} * layout.num_layers,
              .prefill = core.timeline.Now() - sequence.prefill_began,
              .units = sequence.chunks * layout.num_layers},
             [this, id = sequence.id, began = core.timeline.Now()] { OnSent(id, began); });
}

// The decode worker gets the commit first. This worker frees the blocks between two of its steps.
void SimulatedSender::OnSent(SequenceId id, TimePoint began) {
  WorkerCore& core = parts_.core;
  const SimulatedSequence* const sequence = core.store.Find(id);
  if (core.dead || sequence == nullptr) return;  // lost, or cancelled
  const bool arrived =
      parts_.deliver(sequence->target->data_address, sequence->target->reservation);
  const Duration exposed = core.timeline.Now() - began;
  parts_.post([this, id, exposed, arrived] {
    WorkerCore& here = parts_.core;
    SimulatedSequence* const sent = here.store.Find(id);
    if (sent == nullptr) return;
    if (!arrived) {
      return here.End(*sent, {.status = Unavailable("KV hand-off to {}: it has gone",
                                                    sent->target->data_address)});
    }
    ++here.counts.handoff_counts.sent;
    const auto bytes = static_cast<uint64_t>(TokensToSend(*sent)) *
                       static_cast<uint64_t>(here.config.model->layout.BytesPerToken());
    FinishInfo info{.reason = FinishReason::kHandedOff};
    info.kv = {.raw_bytes = bytes,
               .wire_bytes = bytes,
               .duration = sent->stages.prefill + exposed,
               .exposed = exposed};
    here.End(*sent, info);
  });
}

}  // namespace tandem::simulator
