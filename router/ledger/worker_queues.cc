#include "router/ledger/worker_queues.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

namespace tandem {
namespace {

using Stage = PartInFlight::Stage;

// The capacity of a worker that does not say how many blocks it has.
constexpr int64_t kUnlimitedTokens = int64_t{1} << 40;
// Counts in reports are cut to this, so that they fit in 32 bits.
constexpr double kMostCounted = 1 << 30;

int32_t Counted(double count) { return static_cast<int32_t>(std::min(count, kMostCounted)); }

// Sums over the decoding sequences of one group.
struct DecodeSums {
  double count = 0;
  double context_tokens = 0;
  double remaining_tokens = 0;

  void Add(double sequences, double context, double remaining) {
    count += sequences;
    context_tokens += sequences * context;
    remaining_tokens += sequences * remaining;
  }
};

// The group of a decoding sequence: those with 8 to 15 tokens to go share one, those with 16 to 31
// the next, and so on; the first group has fewer, the last more. One group is left for the
// sequences of other routers.
size_t GroupOf(double remaining_tokens) {
  constexpr int kFirst = 3;
  const int group = std::ilogb(std::max(1.0, remaining_tokens)) - kFirst + 1;
  return static_cast<size_t>(std::clamp(group, 0, kMostGroups - 2));
}

bool Decodes(const PartInFlight& part) { return part.stage == Stage::kDecoding; }

bool Waits(const PartInFlight& part) {
  return part.stage == Stage::kWaiting || part.stage == Stage::kAwaitingRoom;
}

void AddDecodes(const WorkerLedger& ledger, WorkerState& state) {
  std::array<DecodeSums, kMostGroups - 1> groups;
  for (const PartInFlight& part : ledger.parts()) {
    if (!Decodes(part)) continue;
    const double remaining = part.remaining_tokens();
    groups[GroupOf(remaining)].Add(part.live_sequences, part.context_tokens(), remaining);
  }
  const auto add = [&state](double count, double context, double remaining) {
    if (count < 1) return;
    state.decoding.push_back({.count = Counted(count),
                              .context_tokens = context / count,
                              .remaining_tokens = std::max(1.0, remaining / count)});
  };
  for (const DecodeSums& sums : groups) add(sums.count, sums.context_tokens, sums.remaining_tokens);
  const WorkerDemand& others = ledger.others();
  add(static_cast<double>(others.decoding), others.decode_context_tokens,
      others.expected_decode_tokens);
}

WaitingGroup GroupOf(const PartInFlight& part) {
  if (part.kind == RequestPart::Kind::kDecode) {
    return {.count = part.live_sequences,
            .cached_tokens = part.prompt_tokens,
            .output_tokens = part.remaining_tokens()};
  }
  const int32_t done =
      std::clamp(part.cached_tokens + part.computed_tokens, 0, std::max(0, part.prompt_tokens - 1));
  return {.count = 1,
          .new_tokens = std::max(1, part.prompt_tokens - done),
          .cached_tokens = done,
          .output_tokens = part.output_tokens,
          .sequences = part.live_sequences};
}

// Puts `more` into `group`, whose members then have the average of all.
void Merge(const WaitingGroup& more, WaitingGroup& group) {
  const int32_t count = group.count + more.count;
  if (count < 1) return;
  const double share = static_cast<double>(more.count) / count;
  const auto mean = [share](auto a, auto b) {
    return static_cast<decltype(a)>(std::round(a + share * (b - a)));
  };
  group.new_tokens = mean(group.new_tokens, more.new_tokens);
  group.cached_tokens = mean(group.cached_tokens, more.cached_tokens);
  group.output_tokens += share * (more.output_tokens - group.output_tokens);
  group.sequences = std::max(1, mean(group.sequences, more.sequences));
  group.count = count;
}

void AddWaiting(const WorkerLedger& ledger, const QueueContext& context, WorkerState& state) {
  const WorkerDemand& others = ledger.others();
  if (others.waiting > 0) {
    const auto waiting = static_cast<double>(others.waiting);
    const double each = static_cast<double>(others.waiting_prompt_tokens) / waiting;
    state.waiting.push_back({.count = Counted(waiting),
                             .new_tokens = std::max(1, Counted(each)),
                             .output_tokens = context.output_tokens});
  }
  const auto end = std::ranges::find_if(
      ledger.parts(), [&context](const PartInFlight& part) { return &part == context.before; });
  const auto count = std::count_if(ledger.parts().begin(), end, Waits);
  const auto groups = kMostGroups - static_cast<int>(state.waiting.size());
  const auto in_each = (count + groups - 1) / groups;
  auto left = decltype(in_each){0};  // places that are left in the latest group
  for (auto part = ledger.parts().begin(); part != end; ++part) {
    if (!Waits(*part)) continue;
    if (left-- > 0) {
      Merge(GroupOf(*part), state.waiting.back());
    } else {
      state.waiting.push_back(GroupOf(*part));
      left = in_each - 1;
    }
  }
}

// How long the worker will have been in its present step when the request arrives there, by the
// latest message from it. The step began before its tokens arrived here, and the request arrives
// there later than now: messages_ms is the time of both ways. Where a request found the worker
// idle, the step began with its arrival, and it was as long on its way as this one will be.
std::optional<double> ElapsedMs(const WorkerLedger& ledger, const QueueContext& context) {
  for (const PartInFlight& part : ledger.parts()) {
    if (part.stage != Stage::kWaiting && !Decodes(part)) continue;
    if (ledger.latest_event() <= part.sent) return ToMilliseconds(context.now - part.sent);
    return ToMilliseconds(context.now - ledger.latest_event()) + context.messages_ms;
  }
  return std::nullopt;
}

}  // namespace

WorkerState QueuesOf(const WorkerView& worker, const WorkerLedger* ledger,
                     const QueueContext& context) {
  WorkerState state;
  state.steps = &worker.costs->steps;
  state.prefill_ends =
      worker.role == v1::WORKER_ROLE_PREFILL ? PrefillEnds::kInHandOff : PrefillEnds::kInDecode;
  if (worker.info->max_step_tokens > 0) state.max_step_tokens = worker.info->max_step_tokens;
  state.messages_ms = context.messages_ms;
  if (worker.info->max_sequences > 0) state.max_sequences = worker.info->max_sequences;
  if (ledger != nullptr) {
    AddDecodes(*ledger, state);
    AddWaiting(*ledger, context, state);
    state.elapsed_ms = ElapsedMs(*ledger, context);
    state.arrivals = ledger->arrivals().At(context.now);
    state.usual = ledger->usual_arrivals().At(context.now);
  }
  double held = 0;
  for (const DecodeGroup& group : state.decoding) held += group.count * group.context_tokens;
  const int64_t all = int64_t{worker.load->total_blocks()} * worker.info->layout.block_tokens();
  state.available_kv_tokens =
      all > 0 ? std::max<int64_t>(0, all - static_cast<int64_t>(held)) : kUnlimitedTokens;
  return state;
}

}  // namespace tandem
