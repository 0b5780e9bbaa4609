#include "scheduler/latency_model/queue_roll.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "scheduler/latency_model/kv_peak.h"

namespace tandem {
namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();
// The tolerance for rounding errors: sums of fractions of tokens differ from whole numbers by less.
constexpr double kRounding = 1e-6;
// A group of prompts is computed in at least so many segments, because each prompt that is complete
// decodes beside the next ones.
constexpr double kSegmentsOfAGroup = 8;

DecodeGroup AsDecodes(const WaitingGroup& group, int32_t count) {
  return {.count = count * std::max(group.sequences, 1),
          .context_tokens = static_cast<double>(group.cached_tokens) + group.new_tokens,
          .remaining_tokens = std::max(0.0, group.output_tokens)};
}

double MembersLeft(double tokens_left, double tokens_each) {
  return std::ceil(tokens_left / tokens_each - kRounding);
}

}  // namespace

QueueRoll::QueueRoll(const WorkerState& worker)
    : worker_(worker), decoding_(worker.decoding), waiting_(worker.waiting) {
  waiting_.insert(waiting_.end(), worker.charged.begin(), worker.charged.end());
  std::erase_if(decoding_, [](const DecodeGroup& group) {
    return group.count < 1 || !(group.remaining_tokens > 0);
  });
  std::erase_if(waiting_, [](const WaitingGroup& group) { return group.count < 1; });
  if (worker.prefill_ends == PrefillEnds::kInHandOff) {
    for (WaitingGroup& group : waiting_) group.output_tokens = 0;
  }
  capacity_tokens_ = static_cast<double>(worker.available_kv_tokens);
  for (const DecodeGroup& group : decoding_) {
    capacity_tokens_ += group.count * group.context_tokens;
  }
  Admit();
  if (worker.elapsed_ms) {
    CatchUp(*worker.elapsed_ms);
  } else {
    // A request arrives in the middle of a step, on average, and a worker handles it after that
    // step.
    const Chunks chunks = NextChunks();
    now_ms_ = StepMs(chunks.tokens, chunks.pairs, 1) / 2;
  }
}

// Runs the steps since the reported state, and the step in progress to its end. A step that samples
// tokens would have been reported at its end: so it is the one in progress, however late it is.
void QueueRoll::CatchUp(double elapsed_ms) {
  now_ms_ = -std::max(0.0, elapsed_ms);
  while (now_ms_ < 0 && !(decoding_.empty() && next_prompt_ == prompts_.size())) {
    const Chunks chunks = NextChunks();
    const double step_ms = StepMs(chunks.tokens, chunks.pairs, 1);
    const double unnoticed = StepsWithoutNews(Budget());
    if (unnoticed < 1) {
      now_ms_ = std::max(now_ms_, -step_ms);
      RunSegment(1);
      Admit();
      break;
    }
    if (!(step_ms > 0)) break;
    RunSegment(std::min(unnoticed, std::max(1.0, std::ceil(-now_ms_ / step_ms))));
    Admit();
  }
  now_ms_ = std::max(now_ms_, 0.0);
}

// The number of coming steps that sample no token, because they compute only a part of a prompt.
double QueueRoll::StepsWithoutNews(double budget) const {
  if (!decoding_.empty() || next_prompt_ == prompts_.size()) return 0;
  const Prompts& first = prompts_[next_prompt_];
  const double until_end =
      first.tokens_left - static_cast<double>(first.group.count - 1) * first.group.new_tokens;
  return std::ceil(until_end / budget - kRounding) - 1;
}

bool QueueRoll::Serve(const WaitingGroup& subject) {
  waiting_.push_back(subject);
  waiting_.back().count = 1;
  has_subject_ = true;
  Admit();
  while (!served_) {
    const bool prefilling = next_prompt_ < prompts_.size();
    const bool is_next = prefilling ? prompts_[next_prompt_].subject : IsSubject(next_waiting_);
    if (segments_ >= kMostSegments && !is_next) {
      SkipQueue();
    } else if (prefilling || !decoding_.empty()) {
      RunSegment(kForever);
    } else if (is_next) {
      return false;
    } else {
      ++next_waiting_;  // no running sequence could still make room for it
    }
    Admit();
  }
  return true;
}

// Skips a queue that is too long to be simulated: its tokens take full steps, and the subject is
// next.
void QueueRoll::SkipQueue() {
  double tokens = 0;
  while (next_waiting_ < waiting_.size() && !IsSubject(next_waiting_)) {
    const WaitingGroup& group = waiting_[next_waiting_++];
    tokens += static_cast<double>(group.count) * group.new_tokens;
  }
  while (next_prompt_ < prompts_.size() && !prompts_[next_prompt_].subject) {
    tokens += prompts_[next_prompt_++].tokens_left;
  }
  now_ms_ += tokens / Budget() * StepMs(Budget(), 0, 1);
}

void QueueRoll::RunUntil(double moment_ms) {
  while (now_ms_ < moment_ms && !(decoding_.empty() && next_prompt_ == prompts_.size())) {
    const Chunks chunks = NextChunks();
    const double step_ms = StepMs(chunks.tokens, chunks.pairs, 1);
    if (!(step_ms > 0)) break;
    RunSegment(std::max(1.0, std::ceil((moment_ms - now_ms_) / step_ms - kRounding)));
    Admit();
  }
  now_ms_ = std::max(now_ms_, moment_ms);
}

DecodeTime QueueRoll::Decode(const DecodingRequest& subject) {
  const DecodeTime time = RollDecode(worker_, decoding_, subject);
  now_ms_ += time.ms;
  added_.externality_ms += time.externality_ms;
  return time;
}

void QueueRoll::Admit() {
  while (next_waiting_ < waiting_.size()) {
    WaitingGroup& group = waiting_[next_waiting_];
    const int32_t count = CountThatFits(group);
    if (count == 0) return;
    const bool subject = IsSubject(next_waiting_);
    if (group.new_tokens > 0) {
      const int64_t end = int64_t{group.cached_tokens} + group.new_tokens;
      const auto pairs = static_cast<double>(CausalPairs(group.cached_tokens, end));
      Prompts& prompts = prompts_.emplace_back();
      prompts.group = group;
      prompts.group.count = count;
      prompts.tokens_left = static_cast<double>(count) * group.new_tokens;
      prompts.token_pairs = pairs / group.new_tokens;
      prompts.subject = subject;
    } else if (!subject) {
      decoding_.push_back(AsDecodes(group, count));
    } else {
      served_ = true;
    }
    group.count -= count;
    if (group.count > 0) return;
    ++next_waiting_;
  }
}

int32_t QueueRoll::CountThatFits(const WaitingGroup& group) {
  double places = worker_.max_sequences - NumDecoding();
  for (size_t i = next_prompt_; i < prompts_.size(); ++i) {
    places -= AsDecodes(prompts_[i].group, prompts_[i].group.count).count;
  }
  const double fit = std::max(0.0, std::floor(places / std::max(group.sequences, 1)));
  auto count = static_cast<int32_t>(std::min<double>(group.count, fit));
  excess_tokens_ = 0;
  for (; count > 0; count /= 2) {
    std::vector<DecodeGroup> all = Admitted();
    all.push_back(AsDecodes(group, count));
    double at_their_ends = 0;
    for (const DecodeGroup& one : all) {
      at_their_ends += one.count * (one.context_tokens + one.remaining_tokens);
    }
    if (at_their_ends <= capacity_tokens_) return count;
    const double peak = PeakKvTokens(std::move(all));
    if (peak <= capacity_tokens_) return count;
    excess_tokens_ = peak - capacity_tokens_;
  }
  return 0;
}

std::vector<DecodeGroup> QueueRoll::Admitted() const {
  std::vector<DecodeGroup> all = decoding_;
  for (size_t i = next_prompt_; i < prompts_.size(); ++i) {
    all.push_back(AsDecodes(prompts_[i].group, prompts_[i].group.count));
  }
  return all;
}

double QueueRoll::NumDecoding() const {
  double count = 0;
  for (const DecodeGroup& group : decoding_) count += group.count;
  return count;
}

// The tokens of a step that are left for prefill chunks; at least 1, because a step that is full of
// decodes still computes a token of a prompt now and then.
double QueueRoll::Budget() const { return std::max(1.0, worker_.max_step_tokens - NumDecoding()); }

double QueueRoll::StepsUntilAnEnd() const {
  double steps = kForever;
  for (const DecodeGroup& group : decoding_) steps = std::min(steps, group.remaining_tokens);
  return std::max(1.0, std::ceil(steps - kRounding));
}

double QueueRoll::SegmentSteps(double wanted, double most) {
  const int beyond = ++segments_ - kExactSegments;
  if (beyond > 0) wanted = std::max(wanted, std::ldexp(1.0, std::min(beyond / 4, 30)));
  return std::min(wanted, most);
}

// The number of steps that the first group of prompts fills alone, or 1 when it does not fill one.
double QueueRoll::PromptSteps(double budget) const {
  const Prompts& first = prompts_[next_prompt_];
  return std::max(1.0, std::floor(first.tokens_left / budget + kRounding));
}

QueueRoll::Chunks QueueRoll::NextChunks() const {
  Chunks chunks;
  const double budget = Budget();
  for (size_t i = next_prompt_; i < prompts_.size() && chunks.tokens < budget; ++i) {
    const double tokens = std::min(prompts_[i].tokens_left, budget - chunks.tokens);
    chunks.tokens += tokens;
    chunks.pairs += tokens * prompts_[i].token_pairs;
    if (!prompts_[i].subject) continue;
    chunks.subject_tokens += tokens;
    chunks.subject_pairs += tokens * prompts_[i].token_pairs;
  }
  return chunks;
}

// The mean time of a step over `steps` steps, in each of which every context grows by a token.
double QueueRoll::StepMs(double tokens, double pairs, double steps) const {
  const double sequences = NumDecoding();
  double context = sequences * (steps - 1) / 2;
  for (const DecodeGroup& group : decoding_) context += group.count * group.context_tokens;
  return worker_.steps->StepMs(tokens, pairs, sequences, context);
}

void QueueRoll::RunSegment(double most) {
  const Chunks chunks = NextChunks();
  double wanted = StepsUntilAnEnd();
  // A sequence that is admitted one step later holds one token less when the others end, so after
  // that many steps it may fit.
  if (excess_tokens_ > 0) wanted = std::min(wanted, std::max(1.0, std::ceil(excess_tokens_)));
  if (chunks.tokens > 0) {
    const double alike = PromptSteps(Budget());
    const bool single = prompts_[next_prompt_].group.count == 1;
    wanted = std::min(wanted, single ? alike : std::ceil(alike / kSegmentsOfAGroup));
    most = std::min(most, alike);
  }
  const double steps = SegmentSteps(wanted, most);
  const double step_ms = StepMs(chunks.tokens, chunks.pairs, steps);
  if (chunks.subject_tokens > 0) {
    if (chunks_ == 0) began_ms_ = now_ms_;
    chunks_ += steps;
    const double without =
        StepMs(chunks.tokens - chunks.subject_tokens, chunks.pairs - chunks.subject_pairs, steps);
    added_.prefill_ms += (step_ms - without) * steps;
    added_.externality_ms += (step_ms - without) * NumDecoding() * steps;
  }
  now_ms_ += step_ms * steps;
  AdvanceDecodes(steps);
  ConsumePrompts(chunks.tokens * steps);
}

void QueueRoll::AdvanceDecodes(double steps) {
  for (DecodeGroup& group : decoding_) {
    group.context_tokens += steps;
    group.remaining_tokens -= steps;
  }
  std::erase_if(decoding_,
                [](const DecodeGroup& group) { return group.remaining_tokens <= kRounding; });
}

void QueueRoll::ConsumePrompts(double tokens) {
  while (tokens > kRounding && next_prompt_ < prompts_.size()) {
    Prompts& first = prompts_[next_prompt_];
    const double taken = std::min(tokens, first.tokens_left);
    tokens -= taken;
    first.tokens_left -= taken;
    const auto left = static_cast<int32_t>(MembersLeft(first.tokens_left, first.group.new_tokens));
    const int32_t done = first.group.count - left;
    first.group.count = left;
    // The step that ends a prefill samples the first token of the output.
    if (done > 0 && !first.subject && worker_.prefill_ends == PrefillEnds::kInDecode) {
      DecodeGroup decodes = AsDecodes(first.group, done);
      decodes.context_tokens += 1;
      decodes.remaining_tokens -= 1;
      if (decodes.remaining_tokens > kRounding) decoding_.push_back(decodes);
    }
    if (left > 0) continue;
    served_ = served_ || first.subject;
    ++next_prompt_;
  }
}

}  // namespace tandem
