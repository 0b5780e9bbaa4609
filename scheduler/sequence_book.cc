#include "scheduler/sequence_book.h"

#include "base/check.h"
#include "base/status.h"

namespace tandem {
namespace {

bool IsQueued(Phase phase) { return phase == Phase::kWaiting || phase == Phase::kPrefilling; }

bool HoldsRows(Phase phase) {
  return phase == Phase::kPrefilling || phase == Phase::kRunning || phase == Phase::kParked ||
         phase == Phase::kSwappingIn;
}

// Reduces the tokens that the sequence has computed, knows and may hold by `tokens`; a negative
// number increases them.
void Shorten(SequenceState& state, int32_t tokens) {
  state.spec.max_total_tokens -= tokens;
  state.computed_tokens -= tokens;
  state.known_tokens -= tokens;
}

// Counts `tokens` tokens of the prompt as evicted; a negative number gives them back.
void ShortenPrompt(SequenceState& state, int32_t tokens) {
  state.spec.evicted_tokens += tokens;
  state.spec.prompt_tokens -= tokens;
  Shorten(state, tokens);
}
void ShortenOutput(SequenceState& state, int32_t tokens) {
  state.evicted_output += tokens;
  Shorten(state, tokens);
}

absl::Status CheckTokens(const SequenceState& one) {
  const SequenceId id = one.spec.id;
  if (one.computed_tokens < 0 || one.known_tokens > one.spec.max_total_tokens + 1) {
    return Internal("sequence {}: {} tokens computed, {} known, {} at most", id,
                    one.computed_tokens, one.known_tokens, one.spec.max_total_tokens);
  }
  if (one.spec.evicted_tokens < 0 || one.spec.prompt_tokens < 1) {
    return Internal("sequence {}: {} tokens of the prompt are evicted, {} are left", id,
                    one.spec.evicted_tokens, one.spec.prompt_tokens);
  }
  if (one.evicted_output < 0 || one.most_output() < one.evicted_output) {
    return Internal("sequence {}: {} tokens of its output are evicted, it may have {}", id,
                    one.evicted_output, one.most_output());
  }
  const int32_t left = one.known_tokens - one.computed_tokens;
  if (one.phase == Phase::kRunning && left != 1) {
    return Internal("sequence {} decodes, but {} tokens are not computed", id, left);
  }
  if (one.phase == Phase::kWaiting && one.computed_tokens != 0) {
    return Internal("sequence {} waits, but {} tokens are computed", id, one.computed_tokens);
  }
  if (one.phase == Phase::kPrefilling && left < 1) {
    return Internal("sequence {} prefills, but nothing is left to compute", id);
  }
  return absl::OkStatus();
}

}  // namespace

SequenceBook::Entry SequenceBook::Add(const SequenceSpec& spec, Phase phase) {
  const Entry added =
      phases_[0].insert(phases_[0].end(), {.spec = spec,
                                           .known_tokens = spec.prompt_tokens + spec.emitted_tokens,
                                           .order = next_order_++});
  TANDEM_CHECK(sequences_.emplace(spec.id, added).second, "a sequence id is used twice");
  if (spec.deadline != kNoDeadline) deadlines_.emplace(spec.deadline, spec.id);
  Enter(added, phase);
  return added;
}

SequenceBook::Entry SequenceBook::AddSibling(Entry sequence, SequenceId id) {
  TANDEM_CHECK(!IsQueued(sequence->phase), "a sequence in the queue has no siblings");
  SequenceSpec spec = sequence->spec;
  spec.id = id;
  const Entry sibling = Add(spec, sequence->phase);
  sibling->computed_tokens = sequence->computed_tokens;
  sibling->known_tokens = sequence->known_tokens;
  sibling->order = sequence->order;
  sibling->waited = sequence->waited;
  sibling->aged = sequence->aged;
  return sibling;
}

void SequenceBook::Remove(Entry sequence) {
  Leave(*sequence);
  deadlines_.erase({sequence->spec.deadline, sequence->spec.id});
  sequences_.erase(sequence->spec.id);
  InPhase(sequence->phase).erase(sequence);
}

void SequenceBook::Leave(SequenceState& sequence) {
  if (IsQueued(sequence.phase)) {
    queue_.Remove(sequence, now_);
    backlog_tokens_ -= sequence.known_tokens - sequence.computed_tokens;
  }
  if (HoldsRows(sequence.phase)) rows_ -= sequence.spec.width;
}

void SequenceBook::Enter(Entry sequence, Phase phase) {
  Sequences& to = InPhase(phase);
  to.splice(to.end(), InPhase(sequence->phase), sequence);
  sequence->phase = phase;
  if (HoldsRows(phase)) rows_ += sequence->spec.width;
  if (IsQueued(phase)) {
    queue_.Add(*sequence, now_);
    backlog_tokens_ += sequence->known_tokens - sequence->computed_tokens;
  }
}

void SequenceBook::Evict(Entry sequence, TokensOf part, int32_t tokens) {
  const int32_t prompt = sequence->spec.prompt_tokens;
  const int32_t there = part == TokensOf::kPrompt ? prompt - 1 : sequence->computed_tokens - prompt;
  TANDEM_CHECK(
      sequence->phase == Phase::kRunning && tokens <= there,
      "only a sequence that runs gives up KV: of its prompt a part, of output what it has");
  part == TokensOf::kPrompt ? ShortenPrompt(*sequence, tokens) : ShortenOutput(*sequence, tokens);
}

// A beam search cannot continue from its tokens alone, so it begins again behind the prompt.
void SequenceBook::Restart(Entry sequence) {
  Update(sequence, Phase::kWaiting, [](SequenceState& state) {
    ShortenPrompt(state, -state.spec.evicted_tokens);
    ShortenOutput(state, -state.evicted_output);
    state.computed_tokens = 0;
    state.shared_tokens = 0;
    if (state.spec.width > 1) state.known_tokens = state.spec.prompt_tokens;
  });
}

void SequenceBook::CountComputed(Entry sequence, int32_t tokens) {
  sequence->computed_tokens += tokens;
  backlog_tokens_ -= tokens;
}

SequenceBook::Entry SequenceBook::Get(SequenceId id, Phase phase) {
  const auto place = sequences_.find(id);
  TANDEM_CHECK(place != sequences_.end() && place->second->phase == phase,
               "a sequence is not in the phase that its caller takes it to be in");
  return place->second;
}

std::optional<SequenceId> SequenceBook::RemoveExpired() {
  if (deadlines_.empty() || deadlines_.begin()->first > now_) return std::nullopt;
  const SequenceId id = deadlines_.begin()->second;
  Remove(sequences_.at(id));
  return id;
}

TimePoint SequenceBook::NextDeadline() const {
  return deadlines_.empty() ? kNoDeadline : deadlines_.begin()->first;
}

SchedulerStats SequenceBook::stats() const {
  return {
      .waiting = Count(Phase::kWaiting),
      .prefilling = Count(Phase::kPrefilling),
      .running = Count(Phase::kRunning),
      .parked = Count(Phase::kParked),
      .swapped = Count(Phase::kSwappingOut) + Count(Phase::kSwapped) + Count(Phase::kSwappingIn),
      .waiting_prompt_tokens = backlog_tokens_};
}

absl::Status SequenceBook::CheckInvariants(int32_t max_rows) const {
  int64_t rows = 0;
  int64_t backlog = 0;
  size_t sequences = 0;
  size_t deadlines = 0;
  for (int i = 0; i < kNumPhases; ++i) {
    const auto phase = static_cast<Phase>(i);
    for (const SequenceState& one : InPhase(phase)) {
      ++sequences;
      if (one.spec.deadline != kNoDeadline) ++deadlines;
      const auto place = sequences_.find(one.spec.id);
      if (one.phase != phase || place == sequences_.end() || &*place->second != &one) {
        return Internal("sequence {} is in the list of another phase", one.spec.id);
      }
      RETURN_IF_ERROR(CheckTokens(one));
      if (IsQueued(phase)) backlog += one.known_tokens - one.computed_tokens;
      if (HoldsRows(phase)) rows += one.spec.width;
    }
  }
  const auto check = [](const char* what, int64_t is, int64_t counted) {
    if (is == counted) return absl::OkStatus();
    return Internal("{}: {} by the sequences, {} counted", what, is, counted);
  };
  RETURN_IF_ERROR(check("sequences", static_cast<int64_t>(sequences), sequences_.size()));
  RETURN_IF_ERROR(check("deadlines", static_cast<int64_t>(deadlines), deadlines_.size()));
  RETURN_IF_ERROR(check("rows", rows, rows_));
  RETURN_IF_ERROR(check("tokens to prefill", backlog, backlog_tokens_));
  RETURN_IF_ERROR(
      check("queued sequences", Count(Phase::kWaiting) + Count(Phase::kPrefilling), queue_.size()));
  if (rows_ > max_rows) return Internal("{} rows are in use, there are {}", rows_, max_rows);
  return absl::OkStatus();
}

}  // namespace tandem
