#include "router/request/request_metrics.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace tandem {
namespace {

// The bucket edges that dashboards for servers of language models are drawn for.
std::vector<double> FirstTokenBounds() {
  return {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
          1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
}
std::vector<double> TokenBounds() {
  return {.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80};
}
// Adds finer buckets at the low end, because a token of the sample model takes half a millisecond.
std::vector<double> FineTokenBounds() {
  std::vector<double> bounds = TokenBounds();
  bounds.insert(bounds.begin(), {.00025, .0005, .001, .0025, .005});
  return bounds;
}
std::vector<double> RequestBounds() {
  return {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
          30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
}
std::vector<double> FineRequestBounds() {
  std::vector<double> bounds = RequestBounds();
  bounds.insert(bounds.begin(), {.001, .0025, .005, .01, .025, .05, .1, .2});
  return bounds;
}
// The bucket edges of counts: 1, 2 and 5 times the powers of ten.
std::vector<double> CountBounds() {
  std::vector<double> bounds;
  for (double power = 1; power <= 100'000; power *= 10) {
    for (const double step : {1, 2, 5}) bounds.push_back(step * power);
  }
  return bounds;
}

std::vector<double> With(std::optional<ModelTime> edge, std::vector<double> bounds) {
  if (edge) bounds.push_back(edge->count() / 1e3);
  return bounds;
}

std::vector<double> BoundsOf(RequestHistogram which, const Slo& slo) {
  switch (which) {
    case RequestHistogram::kTimeToFirstToken:
      return With(slo.ttft, FirstTokenBounds());
    case RequestHistogram::kInterToken:
    case RequestHistogram::kTimePerOutputToken:
      return With(slo.tpot, FineTokenBounds());
    case RequestHistogram::kEndToEnd:
    case RequestHistogram::kQueue:
    case RequestHistogram::kPrefill:
    case RequestHistogram::kDecode:
      return FineRequestBounds();
    case RequestHistogram::kPromptTokens:
    case RequestHistogram::kGenerationTokens:
      return CountBounds();
  }
  return {};
}

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

RequestCounter CounterOf(v1::FinishReason reason) {
  return reason == v1::FINISH_REASON_STOP ? RequestCounter::kStopped : RequestCounter::kLength;
}

}  // namespace

RequestMetrics::RequestMetrics(const Slo& slo) {
  for (size_t i = 0; i < kNumRequestHistograms; ++i) {
    histograms_[i] = std::make_unique<Histogram>(BoundsOf(static_cast<RequestHistogram>(i), slo));
  }
}

void RequestMetrics::Count(RequestCounter which, int64_t by) {
  counters_[static_cast<size_t>(which)].fetch_add(static_cast<uint64_t>(std::max<int64_t>(by, 0)),
                                                  std::memory_order_relaxed);
}

void RequestMetrics::OnFirstToken(std::string_view id, int32_t prompt_tokens, Duration after,
                                  TimePoint now) {
  Of(RequestHistogram::kTimeToFirstToken).Observe(Seconds(after), id, now);
  Count(RequestCounter::kPromptTokens, prompt_tokens);
}

// Tokens that came in one message are taken to have come evenly. Few messages have several, so
// nearly every gap is counted with the id of its request as an exemplar.
void RequestMetrics::OnTokens(std::string_view id, int32_t tokens, Duration gap, TimePoint now) {
  if (tokens <= 0) return;
  Count(RequestCounter::kGenerationTokens, tokens);
  const double each = Seconds(gap) / tokens;
  Histogram& histogram = Of(RequestHistogram::kInterToken);
  histogram.Observe(each, id, now);
  if (tokens > 1) histogram.Observe(each, static_cast<uint64_t>(tokens) - 1);
}

void RequestMetrics::OnWhole(const WholeRequest& request, TimePoint now) {
  const v1::ChoiceFinish& longest = request.longest;
  const auto observe = [&](RequestHistogram which, double milliseconds) {
    Of(which).Observe(milliseconds / 1e3, request.id, now);
  };
  observe(RequestHistogram::kEndToEnd, longest.e2e_ms());
  if (longest.completion_tokens() > 0) {
    const v1::Stages& stages = longest.stages();
    observe(RequestHistogram::kQueue, stages.queue_ms() + stages.admission_ms());
    observe(RequestHistogram::kPrefill, stages.prefill_ms());
  }
  if (request.streamed && longest.completion_tokens() > 1) {
    observe(RequestHistogram::kTimePerOutputToken, longest.tpot_ms());
    observe(RequestHistogram::kDecode, longest.tpot_ms() * (longest.completion_tokens() - 1));
  }
  Of(RequestHistogram::kPromptTokens).Observe(request.prompt_tokens);
  Of(RequestHistogram::kGenerationTokens).Observe(request.completion_tokens);
  if (request.looks_up_prefix) {
    Count(RequestCounter::kPrefixQueries, request.prompt_tokens);
    Count(RequestCounter::kPrefixHits, request.cached_tokens);
  }
  if (longest.completion_tokens() == 0) Count(RequestCounter::kPromptTokens, request.prompt_tokens);
  Count(RequestCounter::kPreemptions, request.preemptions);
  Count(CounterOf(longest.reason()), 1);
}

void RequestMetrics::OnEnd(const absl::Status& status) {
  const auto code = static_cast<size_t>(status.code());
  ends_[code < kNumStatusCodes ? code : static_cast<size_t>(absl::StatusCode::kUnknown)].fetch_add(
      1, std::memory_order_relaxed);
  if (status.ok()) return;  // OnWhole has counted it
  Count(absl::IsCancelled(status) ? RequestCounter::kAborted : RequestCounter::kFailed, 1);
}

HistogramState RequestMetrics::state(RequestHistogram which) const {
  return histograms_[static_cast<size_t>(which)]->state();
}

uint64_t RequestMetrics::count(RequestCounter which) const {
  return counters_[static_cast<size_t>(which)].load(std::memory_order_relaxed);
}

std::array<uint64_t, kNumStatusCodes> RequestMetrics::ends() const {
  std::array<uint64_t, kNumStatusCodes> ends;
  for (size_t i = 0; i < kNumStatusCodes; ++i) {
    ends[i] = ends_[i].load(std::memory_order_relaxed);
  }
  return ends;
}

}  // namespace tandem
