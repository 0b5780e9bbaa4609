#include "router/request/request.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/log_setup.h"
#include "base/retry_after.h"
#include "base/simulated_model.h"
#include "base/status.h"
#include "router/request/best_choices.h"
#include "router/request/request_spans.h"

namespace tandem {
namespace {

v1::KvBytes ToKvBytes(const v1::KvReport& kv) {
  v1::KvBytes bytes;
  bytes.set_raw(kv.raw_bytes());
  bytes.set_wire(kv.wire_bytes());
  bytes.set_transfer_ms(static_cast<double>(kv.duration_us()) / 1e3);
  bytes.set_exposed_ms(static_cast<double>(kv.exposed_us()) / 1e3);
  bytes.set_codec(kv.codec());
  bytes.set_expected_ms(static_cast<double>(kv.expected_us()) / 1e3);
  return bytes;
}

v1::KvHandoff ToHandoff(const RequestReport& report) {
  // The most layers of any model, so that a worker that reports more cannot take the router's
  // memory.
  constexpr int kMostLayers = 1024;
  const v1::KvReport& kv = report.last.kv;
  v1::KvHandoff handoff;
  handoff.set_prefill_worker(report.prefill.name);
  handoff.set_decode_worker(report.decode.name);
  *handoff.mutable_bytes() = ToKvBytes(kv);
  handoff.set_evicted_tokens(report.last.evicted_tokens);
  if (kv.layers_size() <= kMostLayers) *handoff.mutable_layers() = kv.layers();
  return handoff;
}

struct LoggedEnd {
  const RequestReport& report;
  const std::optional<v1::ChoiceFinish>& longest;  // the longest choice; nothing if none has ended
  int32_t completion_tokens = 0;
  Duration took{};
  const absl::Status& status;
};

const char* RouteOf(const RequestReport& report) {
  if (report.route == v1::ROUTE_AUTO) return "";  // no worker was chosen
  return report.route == v1::ROUTE_UNIFIED ? "unified" : "disaggregated";
}

// Stands for a value that is not known: fields that are NaN are not written.
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

constexpr char kEndFormat[] =
    "request request_id={} trace_id={} span_id={} model={} route={} prefill={} decode={} "
    "choices={} prompt_tokens={} completion_tokens={} cached_tokens={} resumes={} ttft_ms={:.1f} "
    "tpot_ms={:.3f} e2e_ms={:.1f} tenant={} status={}";

// Logs the one line of each request. The tenant is only in it where the router's owner wants lines
// of all requests.
void LogEnd(const RequestSpec& spec, const LoggedEnd& end, bool always) {
  if (!always && !IsLogged(LogLevel::kInfo)) return;
  const std::string trace_id = spec.trace_id();
  const std::string span_id = spec.span_id();
  const std::string status = end.status.ok() ? "OK" : end.status.ToString();
  const std::string tenant = always ? spec.sequence.tenant() : "";
  const int32_t choices = spec.sequence.n();
  const int32_t prompt_tokens = spec.sequence.prompt_size();
  const bool has_tokens = end.longest && end.longest->completion_tokens() > 0;
  const double ttft_ms = has_tokens ? end.longest->stages().ttft_ms() : kUnknown;
  const double tpot_ms = has_tokens ? end.longest->tpot_ms() : kUnknown;
  const double e2e_ms = ToMilliseconds(end.took);
  const auto write = [&](const auto&... values) {
    if (always) return LogAlways(kEndFormat, values...);
    LogInfo(kEndFormat, values...);
  };
  write(spec.id, trace_id, span_id, spec.model, RouteOf(end.report), end.report.prefill.name,
        end.report.decode.name, choices, prompt_tokens, end.completion_tokens,
        end.report.last.cached_tokens, end.report.resumes, ttft_ms, tpot_ms, e2e_ms, tenant,
        status);
}

}  // namespace

Request::Request(const RouterParts& parts, RequestSpec spec, ResponseStream& stream,
                 std::function<void()> ended, std::function<void(Request&)> waits)
    : spec_(std::move(spec)),
      clock_(parts.clock),
      parts_(parts),
      meter_(parts.metrics, spec_),
      stream_(stream),
      ended_callback_(std::move(ended)),
      waits_callback_(std::move(waits)),
      dispatch_(parts, spec_, *this),
      forecast_(parts.length_forecasts.Predict(spec_.length_query())) {
  for (int32_t i = 0; i < spec_.sequence.n(); ++i) {
    choices_.push_back({.choice = Choice(spec_, i, parts.tokenizer), .unsent = {}});
  }
}

void Request::OnWorkersLost(const std::vector<WorkerId>& lost, const CallEnd& end) {
  if (!dispatch_.ended()) dispatch_.OnWorkersLost(lost, end);
}

void Request::OnWorkersLeaving(const std::vector<WorkerId>& leaving) {
  if (!dispatch_.ended()) dispatch_.OnWorkersLeaving(leaving);
}

void Request::OnClusterChanged() {
  if (!dispatch_.ended()) dispatch_.OnClusterChanged();
}

void Request::OnTokens(const v1::WorkerTokens& tokens, const v1::StageTimes& stages) {
  Choice& choice = choices_[tokens.index()].choice;
  if (choice.ended()) {
    dispatch_.EndChoice(tokens.index());
    return;
  }
  const TimePoint now = clock_.Now();
  const int32_t before = choice.completion_tokens();
  const Duration gap = now - choice.last_token();
  std::vector<v1::Chunk> chunks = choice.Take(tokens, stages, now);
  meter_.OnTokens(choice, before, gap);
  for (v1::Chunk& chunk : chunks) TakeChunk(std::move(chunk));
  if (ended_ || !choice.ended()) return;
  dispatch_.EndChoice(tokens.index());
  OnChoiceOver(choice);
}

void Request::OnChoiceEnded(const v1::WorkerChoiceFinish& finish) {
  Choice& choice = choices_[finish.index()].choice;
  if (choice.ended()) return;  // a stop string has ended it
  TakeChunk(choice.End(finish));
  if (!ended_) OnChoiceOver(choice);
}

void Request::OnPromptLogprobs(const v1::PromptLogprobs& logprobs) {
  v1::GenerateResponse response;
  *response.mutable_prompt_logprobs() = logprobs;
  Send(response);
}

void Request::OnChoiceOver(const Choice& choice) {
  ObserveLength(choice);
  if (dispatch_.Report().last.accounted) SendFinishes();
  const bool all = std::all_of(choices_.begin(), choices_.end(),
                               [](const ChoiceState& one) { return one.choice.ended(); });
  if (all && !ended_) dispatch_.Settle();
}

void Request::ObserveLength(const Choice& choice) {
  if (!spec_.may_stop() || choice.completion_tokens() == 0) return;
  const LengthQuery query = spec_.length_query();
  if (!choice.ended())
    return parts_.length_forecasts.OnInterrupted(query, choice.completion_tokens());
  const bool stopped = choice.reason() == v1::FINISH_REASON_STOP;
  parts_.length_forecasts.OnEnded(query, forecast_, choice.completion_tokens(),
                                  stopped ? FinishKind::kStopped : FinishKind::kCapped);
}

bool Request::NeedsDecode() const {
  return std::any_of(choices_.begin(), choices_.end(),
                     [](const ChoiceState& one) { return one.choice.continues(); });
}

void Request::OnAccounted() {
  const RequestReport report = dispatch_.Report();
  if (report.route == v1::ROUTE_DISAGGREGATED && report.last.prefill_finished) {
    parts_.decisions.SetHandoff(spec_, ToHandoff(report));
  }
  SendFinishes();
}

void Request::OnFinished() {
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (choices_[i].choice.ended()) continue;
    End(Internal("the workers finished without saying how choice {} ended", i));
    return;
  }
  SendFinishes();
  if (spec_.ranked()) SendBest();
  SendSummary();
  End(absl::OkStatus());
}

void Request::TakeChunk(v1::Chunk chunk) {
  if (chunk.text().empty() && chunk.token_ids().empty()) return;
  if (spec_.ranked()) {
    choices_[chunk.index()].unsent.push_back(std::move(chunk));
    return;
  }
  v1::GenerateResponse response;
  *response.mutable_chunk() = std::move(chunk);
  Send(response);
}

void Request::SendFinishes() {
  if (spec_.ranked()) return;
  for (ChoiceState& one : choices_) {
    if (!one.choice.ended() || std::exchange(one.finish_sent, true)) continue;
    v1::GenerateResponse response;
    *response.mutable_finish() = MakeFinish(one.choice);
    Send(response);
  }
}

v1::ChoiceFinish Request::MakeFinish(const Choice& choice) {
  const RequestReport report = dispatch_.Report();
  v1::ChoiceFinish finish = choice.MakeFinish({.reserve = report.reserve.asking,
                                               .admission = report.reserve.waiting,
                                               .earlier_attempts = report.earlier_attempts},
                                              clock_.Now());
  finish.set_route(report.route);
  finish.set_prefill_worker(report.prefill.name);
  finish.set_decode_worker(report.decode.name);
  if (auto predicted = parts_.decisions.PredictionFor(spec_, finish)) {
    *finish.mutable_predicted() = *std::move(predicted);
  }
  if (report.route == v1::ROUTE_DISAGGREGATED)
    *finish.mutable_kv_bytes() = ToKvBytes(report.last.kv);
  if (!longest_ || longest_->completion_tokens() < finish.completion_tokens()) longest_ = finish;
  return finish;
}

void Request::SendBest() {
  std::vector<KeptChoice> kept;
  for (ChoiceState& one : choices_) {
    kept.push_back({.chunks = std::move(one.unsent), .finish = MakeFinish(one.choice)});
  }
  for (KeptChoice& choice : BestChoices(std::move(kept), spec_.n)) {
    v1::GenerateResponse response;
    for (v1::Chunk& chunk : choice.chunks) {
      *response.mutable_chunk() = std::move(chunk);
      Send(response);
    }
    *response.mutable_finish() = std::move(choice.finish);
    Send(response);
  }
}

void Request::SendSummary() {
  v1::GenerateResponse response;
  v1::Summary& summary = *response.mutable_summary();
  summary.set_request_id(spec_.id);
  summary.set_model(spec_.model);
  summary.set_simulated(IsSimulatedModel(spec_.model));
  summary.set_seed(spec_.sequence.sampling().seed());
  const RequestReport report = dispatch_.Report();
  v1::Usage& usage = *summary.mutable_usage();
  usage.set_prompt_tokens(spec_.sequence.prompt_size());
  usage.set_completion_tokens(CompletionTokens());
  usage.set_cached_tokens(report.last.cached_tokens);
  usage.set_evicted_tokens(report.last.evicted_tokens);
  usage.set_preemptions(report.last.preemptions);
  usage.set_resumes(report.resumes);
  usage.set_kv_hidden_bytes(report.last.kv_hidden_bytes);
  Send(response);
}

// Log-probabilities of a prompt are sent as parts of a whole answer: a step scores thousands of its
// tokens, which no reader can keep up with.
void Request::Send(const v1::GenerateResponse& response) {
  const bool whole = spec_.ranked() || spec_.has_beams() || response.has_prompt_logprobs();
  const Pace pace = whole ? Pace::kWhole : Pace::kLive;
  if (ended_ || stream_.Send(response, pace)) return;
  if (pace == Pace::kLive) {
    return End(ResourceExhausted("the client reads too slowly: its stream's buffer is full"));
  }
  absl::Status status = ResourceExhausted(
      "answers that clients have not read fill the router's --answer-buffer-bytes: retry later");
  SetRetryAfter(status, std::chrono::seconds(1));
  End(status);
}

void Request::End(const absl::Status& status) {
  if (ended_) return;
  ended_ = true;
  dispatch_.Abandon();
  for (const ChoiceState& one : choices_) {
    if (!one.choice.ended()) ObserveLength(one.choice);
  }
  const RequestReport report = dispatch_.Report();
  meter_.OnEnd(status, longest_, CompletionTokens(), report.last, clock_.Now());
  LogEnd(spec_,
         {.report = report,
          .longest = longest_,
          .completion_tokens = CompletionTokens(),
          .took = clock_.Now() - spec_.received,
          .status = status},
         parts_.log_requests);
  RecordEnd(status);
  parts_.admission.ChargeTokens(spec_.sequence.tenant(), CompletionTokens(), clock_.Now());
  stream_.End(status);
  ended_callback_();
}

void Request::RecordEnd(const absl::Status& status) {
  const RequestReport report = dispatch_.Report();
  if (spec_.trace.records()) {
    std::vector<v1::FinishReason> reasons;
    for (const ChoiceState& one : choices_) reasons.push_back(one.choice.reason());
    EndRequestTrace(spec_,
                    {.status = status,
                     .report = report,
                     .longest = longest_,
                     .finish_reasons = std::move(reasons),
                     .completion_tokens = CompletionTokens(),
                     .policy = parts_.routing.policy()},
                    clock_.Now());
  }
  if (longest_) longest_->clear_stop();  // the stop string is the client's text, which is not kept
  parts_.decisions.End(spec_, {.status = status,
                               .finish = std::move(longest_),
                               .admission = report.last.reserve.waiting,
                               .resumes = report.resumes,
                               .cached_tokens = report.last.cached_tokens,
                               .evicted_tokens = report.last.evicted_tokens,
                               .sent_whole = spec_.has_beams()});
}

int32_t Request::CompletionTokens() const {
  int32_t tokens = 0;
  for (const ChoiceState& one : choices_) tokens += one.choice.completion_tokens();
  return tokens;
}

}  // namespace tandem
