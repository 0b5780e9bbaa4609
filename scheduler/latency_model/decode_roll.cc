#include "scheduler/latency_model/decode_roll.h"

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

// The tolerance for rounding errors: sums of fractions of tokens differ from whole numbers by less.
constexpr double kTokenRounding = 1e-6;
// At most this share of a worker's time goes to the prefills of requests that arrive later, so that
// the decodes before them always continue.
constexpr double kMostPrefillShare = 0.9;

// When more arrivals than this are expected, the most likely number is not treated apart from the
// mean.
constexpr double kManyArrivals = 16;

ArrivalRates Scaled(const ArrivalRates& arrivals, double factor) {
  ArrivalRates scaled = arrivals;
  scaled.sequences_per_second *= factor;
  scaled.new_tokens_per_second *= factor;
  scaled.new_pairs_per_second *= factor;
  return scaled;
}

// Sequences of the same length that decode together. Their number is an expectation and need not be
// whole.
struct Sequences {
  double count = 0;
  double context_tokens = 0;  // tokens that the next decode of each sequence reads
  double remaining_tokens = 0;
};

// What the steps of one segment compute, on average.
struct Load {
  double sequences = 0;
  double context_tokens = 0;
  double kv_tokens = 0;  // tokens of KV that the sequences hold, on average until they end

  void Add(double count, double context, double remaining) {
    sequences += count;
    context_tokens += count * context;
    kv_tokens += count * (context + remaining / 2);
  }
};

class Roll {
 public:
  Roll(const WorkerState& worker, const ArrivalRates& arrivals,
       const std::vector<DecodeGroup>& others)
      : worker_(worker), arrivals_(arrivals) {
    others_.reserve(others.size() + kDecodeSegments);
    kv_tokens_ = static_cast<double>(worker.available_kv_tokens);
    for (const DecodeGroup& group : worker.decoding) {
      kv_tokens_ += group.count * group.context_tokens;
    }
    for (const DecodeGroup& group : others) {
      others_.push_back(
          {static_cast<double>(group.count), group.context_tokens, group.remaining_tokens});
    }
  }

  DecodeTime Run(const DecodingRequest& request) {
    const double most = std::max(1.0, std::ceil(request.steps / kDecodeSegments));
    double context = request.context_tokens;
    for (double left = request.steps; left > kTokenRounding;) {
      const double steps = std::min(most, left);
      RunSegment(steps, {static_cast<double>(request.sequences), context, left});
      context += steps;
      left -= steps;
    }
    return time_;
  }

 private:
  void RunSegment(double steps, const Sequences& own) {
    Load others = PresentFor(steps);
    const auto with_request = [&] {
      Load all = others;
      all.Add(own.count, own.context_tokens + (steps - 1) / 2, own.remaining_tokens);
      return all;
    };
    Load all = with_request();
    const double coming = Joining(steps * StepMs(all) * Slowdown(all), all);
    const double output = arrivals_.output_tokens;
    // The mean share of the segment's steps in which a sequence takes part that joins during the
    // segment.
    const double present = output >= steps ? 0.5 : output / steps * (1 - output / (2 * steps));
    others.Add(coming * present, arrivals_.context_tokens + std::min(steps, output) / 2, output);
    all = with_request();
    const double slowdown = Slowdown(all);
    const double together = StepMs(all);
    time_.externality_ms += (together - StepMs(others)) * slowdown * others.sequences * steps;
    time_.ms += together * slowdown * steps;
    Advance(steps, coming);
  }

  double StepMs(const Load& load) const {
    return worker_.steps->StepMs(0, 0, load.sequences, load.context_tokens);
  }

  // The load of the sequences that decode now, each counted for the share of the steps until it
  // ends.
  Load PresentFor(double steps) const {
    Load load;
    for (const Sequences& group : others_) {
      const double runs = std::min(group.remaining_tokens, steps);
      load.Add(group.count * runs / steps, group.context_tokens + (runs - 1) / 2,
               group.remaining_tokens);
    }
    return load;
  }

  // The number of sequences that join within `ms`, as far as max_sequences and the KV pool have
  // room.
  double Joining(double ms, const Load& present) const {
    if (!(arrivals_.sequences_per_second > 0)) return 0;
    const double places = worker_.max_sequences - present.sequences;
    const double room = (kv_tokens_ - present.kv_tokens) /
                        std::max(1.0, arrivals_.context_tokens + arrivals_.output_tokens / 2);
    const double coming = arrivals_.sequences_per_second * 1e-3 * ms;
    return std::clamp(coming, 0.0, std::max(0.0, std::min(places, room)));
  }

  // The factor by which the steps get slower because prefills of later requests share them: at most
  // the factor of a step that is full of prompt tokens.
  double Slowdown(const Load& load) const {
    if (!(arrivals_.new_tokens_per_second > 0)) return 1.0;
    const double tokens = std::max(1.0, worker_.max_step_tokens - load.sequences);
    const double pairs = tokens * arrivals_.new_pairs_per_second / arrivals_.new_tokens_per_second;
    const double alone = StepMs(load);
    const double full = worker_.steps->StepMs(tokens, pairs, load.sequences, load.context_tokens);
    const double share = arrivals_.new_tokens_per_second * 1e-3 * (full - alone) / tokens;
    const double slowdown = 1.0 / (1.0 - std::clamp(share, 0.0, kMostPrefillShare));
    return std::min(slowdown, std::max(1.0, full / alone));
  }

  void Advance(double steps, double joined) {
    for (Sequences& group : others_) {
      group.context_tokens += steps;
      group.remaining_tokens -= steps;
    }
    std::erase_if(others_,
                  [](const Sequences& group) { return group.remaining_tokens <= kTokenRounding; });
    const double output = arrivals_.output_tokens;
    const double stay = joined * std::min(1.0, output / steps);
    if (!(stay > 0)) return;
    const double age = std::min(steps, output) / 2;
    others_.push_back({stay, arrivals_.context_tokens + age, output - age});
  }

  const WorkerState& worker_;
  const ArrivalRates& arrivals_;
  std::vector<Sequences> others_;
  double kv_tokens_ = 0;
  DecodeTime time_;
};

}  // namespace

DecodeTime RollDecode(const WorkerState& worker, const std::vector<DecodeGroup>& others,
                      const DecodingRequest& request) {
  const ArrivalRates& arrivals = worker.arrivals;
  DecodeTime time = Roll(worker, arrivals, others).Run(request);
  time.likely_ms = time.ms;
  const double mean = arrivals.sequences_per_second * 1e-3 * time.ms;
  if (!(mean > 0) || mean > kManyArrivals) return time;
  const ArrivalRates likely = Scaled(arrivals, std::floor(mean) / mean);
  time.likely_ms = Roll(worker, likely, others).Run(request).ms;
  return time;
}

}  // namespace tandem
