// Predictions for any worker: against a scheduler that runs every step by itself, and in what they
// may never be.
#include <algorithm>
#include <cmath>
#include <deque>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/latency_model/placement_model.h"

namespace tandem::placement_property_test {
namespace {

class AnyWorker {
 public:
  explicit AnyWorker(uint64_t seed) : random_(seed) {}

  int32_t Pick(int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random_);
  }
  double Share() { return std::uniform_real_distribution<double>(0, 1)(random_); }

  StepModel Steps(bool with_table) {
    StepCoefficients c;
    c.alpha = {.floor_ms = 5 * Share(),
               .base_ms = 5 * Share(),
               .token_ms = 0.1 * Share(),
               .pair_ms = with_table ? 1e-5 * Share() : 0};
    c.beta.buckets = {{.max_sequences = 4, .base_ms = 3 * Share()}};
    c.beta.buckets.push_back({.max_sequences = 64, .base_ms = 3 + Share()});
    c.beta.sequence_ms = Share();
    c.beta.context_token_ms = 1e-3 * Share();
    if (with_table) {
      c.gamma = {.tokens = {32, 256}, .sequences = {1, 8}, .context = {500, 5000}, .gamma_ms = {}};
      for (int i = 0; i < 8; ++i) c.gamma.gamma_ms.push_back(0.1 * Share());
    }
    return StepModel::Create(c).value();
  }

  // Groups of one, so that the roll is exact.
  WorkerState State(const StepModel& steps) {
    WorkerState worker;
    worker.steps = &steps;
    worker.max_step_tokens = Pick(64, 512);
    worker.max_sequences = Pick(4, 40);
    worker.available_kv_tokens = Pick(3000, 40000);
    for (int i = Pick(0, std::min(12, worker.max_sequences)); i > 0; --i) {
      worker.decoding.push_back(
          {.context_tokens = 1.0 * Pick(1, 1000), .remaining_tokens = 1.0 * Pick(1, 200)});
    }
    for (int i = Pick(0, 12); i > 0; --i) worker.waiting.push_back(Waiting());
    return worker;
  }

  WaitingGroup Waiting() {
    return {.new_tokens = Pick(1, 800),
            .cached_tokens = Pick(0, 1) * Pick(0, 300),
            .output_tokens = 1.0 * Pick(1, 150)};
  }

 private:
  std::mt19937_64 random_;
};

// The scheduler of the model, one step after the other.
class StepByStep {
 public:
  explicit StepByStep(const WorkerState& worker)
      : worker_(worker),
        decoding_(worker.decoding),
        waiting_(worker.waiting.begin(), worker.waiting.end()) {
    capacity_ = static_cast<double>(worker.available_kv_tokens);
    for (const DecodeGroup& one : decoding_) capacity_ += one.context_tokens;
  }

  ModelTime Ttft(const RequestShape& request) {
    Admit();
    std::vector<DecodeGroup> decoding;
    std::deque<Prompt> prompts;
    double ms =
        StepMs(Take(prompts_, worker_.max_step_tokens - std::ssize(decoding_), nullptr)) / 2;
    waiting_.push_back(
        {.new_tokens = request.prompt_tokens, .output_tokens = request.output_tokens});
    waiting_.back().count = -1;  // the subject
    while (!served_) {
      Admit();
      const int64_t budget = std::max<int64_t>(1, worker_.max_step_tokens - std::ssize(decoding_));
      std::vector<DecodeGroup> ended;
      const double tokens = Take(prompts_, budget, &ended);
      ms += StepMs(tokens);
      for (DecodeGroup& one : decoding_) {
        one.context_tokens += 1;
        one.remaining_tokens -= 1;
      }
      std::erase_if(decoding_, [](const DecodeGroup& one) { return one.remaining_tokens <= 0; });
      for (const DecodeGroup& one : ended) {
        if (one.remaining_tokens > 0) decoding_.push_back(one);
      }
    }
    return ModelTime(ms);
  }

 private:
  struct Prompt {
    WaitingGroup group;
    int32_t left = 0;
  };

  // Takes a step's tokens from the front; `ended` gets what decodes from then on. Without it
  // nothing changes.
  double Take(std::deque<Prompt>& prompts, int64_t budget, std::vector<DecodeGroup>* ended) {
    int64_t taken = 0;
    size_t done = 0;
    for (Prompt& prompt : prompts) {
      const auto tokens = static_cast<int32_t>(std::min<int64_t>(prompt.left, budget - taken));
      if (tokens == 0) break;
      taken += tokens;
      if (ended == nullptr) continue;
      prompt.left -= tokens;
      if (prompt.left > 0) break;
      ++done;
      served_ = served_ || prompt.group.count < 0;
      ended->push_back(
          {.context_tokens = 1.0 + prompt.group.cached_tokens + prompt.group.new_tokens,
           .remaining_tokens = prompt.group.output_tokens - 1});
    }
    prompts.erase(prompts.begin(), prompts.begin() + static_cast<ptrdiff_t>(done));
    return static_cast<double>(taken);
  }

  double StepMs(double tokens) const {
    double context = 0;
    for (const DecodeGroup& one : decoding_) context += one.context_tokens;
    return worker_.steps->StepMs(tokens, 0, static_cast<double>(decoding_.size()), context);
  }

  void Admit() {
    while (!waiting_.empty() && Fits(waiting_.front())) {
      prompts_.push_back({waiting_.front(), waiting_.front().new_tokens});
      waiting_.pop_front();
    }
  }

  // Tries every moment to come.
  bool Fits(const WaitingGroup& next) const {
    if (std::ssize(decoding_) + std::ssize(prompts_) >= worker_.max_sequences) return false;
    std::vector<DecodeGroup> all = decoding_;
    const auto add = [&all](const WaitingGroup& group) {
      all.push_back({.context_tokens = 1.0 * group.cached_tokens + group.new_tokens,
                     .remaining_tokens = group.output_tokens});
    };
    for (const Prompt& prompt : prompts_) add(prompt.group);
    add(next);
    for (int moment = 0; moment <= 200; ++moment) {
      double held = 0;
      for (const DecodeGroup& one : all) {
        if (one.remaining_tokens >= moment) held += one.context_tokens + moment;
      }
      if (held > capacity_) return false;
    }
    return true;
  }

  const WorkerState& worker_;
  std::vector<DecodeGroup> decoding_;
  std::deque<Prompt> prompts_;
  std::deque<WaitingGroup> waiting_;
  double capacity_ = 0;
  bool served_ = false;
};

TEST(PlacementPropertyTest, ARollInSegmentsIsARollStepByStep) {
  int compared = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    AnyWorker any(seed);
    const StepModel steps = any.Steps(false);
    const WorkerState worker = any.State(steps);
    const RequestShape request = {.prompt_tokens = any.Pick(1, 1500),
                                  .output_tokens = 1.0 * any.Pick(1, 100)};
    const auto predicted = PredictUnified(worker, request, 0);
    ASSERT_TRUE(predicted.has_value()) << seed;
    const ModelTime expected = StepByStep(worker).Ttft(request);
    // The roll is exact up to kExactSegments segments, which few of these workers exceed.
    if (std::abs(predicted->ttft / expected - 1) < 1e-9) ++compared;
    ASSERT_NEAR(predicted->ttft / expected, 1, 0.1) << seed;
  }
  EXPECT_GE(compared, 2900);
}

void ExpectSound(const PlacementPrediction& p) {
  const PredictedStages& s = p.stages;
  for (const ModelTime time : {s.admission, s.queue, s.prefill, s.transfer, s.decode, p.ttft,
                               p.tpot, p.e2e, p.externality}) {
    ASSERT_TRUE(std::isfinite(time.count()));
    ASSERT_GE(time.count(), -1e-9);
  }
  ASSERT_NEAR(p.ttft.count(), (s.admission + s.queue + s.prefill).count(), 1e-6);
  ASSERT_NEAR(p.e2e.count(), (p.ttft + s.transfer + s.decode).count(), 1e-6);
}

constexpr double kSlack = 1e-6;

TEST(PlacementPropertyTest, MoreWorkNeverTakesLess) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    AnyWorker any(seed);
    const StepModel steps = any.Steps(true);
    const WorkerState worker = any.State(steps);
    const RequestShape request = {.prompt_tokens = any.Pick(1, 1500),
                                  .output_tokens = 1.0 * any.Pick(1, 100)};
    const auto before = PredictUnified(worker, request, 0);
    ASSERT_TRUE(before.has_value());
    ExpectSound(*before);

    RequestShape longer = request;
    longer.prompt_tokens += any.Pick(1, 500);
    const auto with_longer = PredictUnified(worker, longer, 0);
    ASSERT_TRUE(with_longer.has_value());
    EXPECT_GE(with_longer->ttft.count() + kSlack, before->ttft.count()) << seed;

    WorkerState charged = worker;
    charged.charged.push_back(any.Waiting());
    const auto behind_one_more = PredictUnified(charged, request, 0);
    ASSERT_TRUE(behind_one_more.has_value());
    ExpectSound(*behind_one_more);
    EXPECT_GE(behind_one_more->ttft.count() + kSlack, before->ttft.count()) << seed;

    const auto with_hits = PredictUnified(worker, request, any.Pick(0, request.prompt_tokens));
    EXPECT_LE(with_hits->ttft.count(), before->ttft.count() + kSlack) << seed;
  }
}

TEST(PlacementPropertyTest, OneMoreDecodeNeverMakesARequestFaster) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    AnyWorker any(seed);
    // Without a floor: smaller chunks of a prompt could lie below it, which costs nothing.
    StepCoefficients coefficients = any.Steps(false).coefficients();
    coefficients.alpha.floor_ms = 0;
    const StepModel steps = StepModel::Create(coefficients).value();
    WorkerState worker = any.State(steps);
    worker.waiting.clear();
    worker.max_sequences = 64;
    worker.available_kv_tokens = 1000000;
    const RequestShape request = {.prompt_tokens = any.Pick(1, 1500),
                                  .output_tokens = 1.0 * any.Pick(1, 100)};
    const auto before = PredictUnified(worker, request, 0);
    worker.decoding.push_back(
        {.context_tokens = 1.0 * any.Pick(1, 1000), .remaining_tokens = 2000});
    const auto after = PredictUnified(worker, request, 0);
    EXPECT_GE(after->ttft.count() + kSlack, before->ttft.count()) << seed;
    EXPECT_GE(after->e2e.count() + kSlack, before->e2e.count()) << seed;
  }
}

TEST(PlacementPropertyTest, DisaggregatedPredictionsAreSoundAndShrinkWithBandwidth) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    AnyWorker any(seed);
    const StepModel steps = any.Steps(true);
    WorkerState prefill = any.State(steps);
    prefill.prefill_ends = PrefillEnds::kInHandOff;
    prefill.decoding.clear();
    WorkerState decode = any.State(steps);
    decode.waiting.clear();
    const RequestShape request = {.prompt_tokens = any.Pick(1, 1500),
                                  .output_tokens = 1.0 * any.Pick(1, 100)};
    const auto p = ForecastPrefill(prefill, request, any.Pick(0, 1500));
    const auto d = ForecastDecode(decode, request, any.Pick(0, 1500), ModelTime(any.Pick(0, 500)));
    ASSERT_TRUE(p.has_value() && d.has_value());
    const KvTransferShape kv = {.bytes_per_token = any.Pick(1, 100000), .layers = any.Pick(1, 40)};
    LinkModel link = {.setup = ModelTime(any.Share()),
                      .operation = ModelTime(0.01 * any.Share()),
                      .bytes_per_second = 1e5 + 1e9 * any.Share()};
    const auto slow = JoinDisaggregated(request, kv, *p, *d, link, any.Pick(1, 8));
    ExpectSound(slow);
    link.bytes_per_second *= 2;
    const auto fast = JoinDisaggregated(request, kv, *p, *d, link, 1);
    ExpectSound(fast);
    EXPECT_LE(fast.e2e.count(), slow.e2e.count() + kSlack) << seed;
    EXPECT_EQ(fast.ttft.count(), slow.ttft.count()) << "the first token comes before the KV";
  }
}

// Queues as long as a broken or hostile report could make them.
TEST(PlacementPropertyTest, AnyQueueGivesAFinitePrediction) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    AnyWorker any(seed);
    const StepModel steps = any.Steps(true);
    WorkerState worker = any.State(steps);
    worker.available_kv_tokens = int64_t{1} << 40;
    worker.waiting.push_back({.count = 1000000000, .new_tokens = 2000000000, .output_tokens = 1e9});
    worker.decoding.push_back({.count = 1000000, .context_tokens = 1e9, .remaining_tokens = 1e12});
    worker.waiting.push_back({.count = -5, .new_tokens = 10});
    worker.decoding.push_back({.remaining_tokens = -1});
    const auto p = PredictUnified(worker, {.prompt_tokens = 2000000000, .output_tokens = 1e9}, 0);
    if (p) ExpectSound(*p);
  }
}

}  // namespace
}  // namespace tandem::placement_property_test
