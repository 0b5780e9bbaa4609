#include "router/request/request.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/retry_after.h"
#include "base/status.h"

namespace tandem {

Request::Request(const RouterParts& parts, RequestSpec spec, ResponseStream& stream,
                 std::function<void()> ended)
    : spec_(std::move(spec)),
      clock_(parts.clock),
      stream_(stream),
      ended_callback_(std::move(ended)),
      told_finish_(spec_.sequence.n()),
      kept_(spec_.ranked() ? spec_.sequence.n() : 0),
      dispatch_(parts, spec_, *this) {
  for (int32_t i = 0; i < spec_.sequence.n(); ++i) choices_.emplace_back(spec_, i, parts.tokenizer);
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
  Choice& choice = choices_[tokens.index()];
  if (choice.ended()) {
    dispatch_.EndChoice(tokens.index());
    return;
  }
  for (v1::Chunk& chunk : choice.Take(tokens, stages, clock_.Now())) TakeChunk(std::move(chunk));
  if (ended_ || !choice.ended()) return;
  dispatch_.EndChoice(tokens.index());
  OnChoiceOver();
}

void Request::OnChoiceEnded(const v1::WorkerChoiceFinish& finish) {
  Choice& choice = choices_[finish.index()];
  if (choice.ended()) return;  // by a stop string
  TakeChunk(choice.End(finish));
  if (!ended_) OnChoiceOver();
}

void Request::OnChoiceOver() {
  if (dispatch_.accounted()) SendFinishes();
  const bool all = std::all_of(choices_.begin(), choices_.end(),
                               [](const Choice& choice) { return choice.ended(); });
  if (all && !ended_) dispatch_.Settle();
}

bool Request::NeedsDecode() const {
  return std::any_of(choices_.begin(), choices_.end(),
                     [](const Choice& choice) { return choice.goes_on(); });
}

void Request::OnFinished() {
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (choices_[i].ended()) continue;
    End(Internal("the workers finished without a word on how choice {} ended", i));
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
    kept_[chunk.index()].chunks.push_back(std::move(chunk));
    return;
  }
  v1::GenerateResponse response;
  *response.mutable_chunk() = std::move(chunk);
  Send(response);
}

void Request::SendFinishes() {
  if (spec_.ranked()) return;
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (!choices_[i].ended() || told_finish_[i]) continue;
    told_finish_[i] = true;
    v1::GenerateResponse response;
    *response.mutable_finish() = MakeFinish(choices_[i]);
    Send(response);
  }
}

v1::ChoiceFinish Request::MakeFinish(const Choice& choice) const {
  v1::ChoiceFinish finish =
      choice.MakeFinish(dispatch_.reserve_time(), dispatch_.admission_time(), clock_.Now());
  dispatch_.Describe(finish);
  return finish;
}

void Request::SendBest() {
  for (size_t i = 0; i < choices_.size(); ++i) kept_[i].finish = MakeFinish(choices_[i]);
  for (KeptChoice& choice : BestChoices(std::move(kept_), spec_.n)) {
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
  summary.set_seed(spec_.sequence.sampling().seed());
  v1::Usage& usage = *summary.mutable_usage();
  usage.set_prompt_tokens(spec_.sequence.prompt_size());
  usage.set_completion_tokens(CompletionTokens());
  usage.set_cached_tokens(dispatch_.cached_tokens());
  usage.set_preemptions(dispatch_.preemptions());
  usage.set_resumes(dispatch_.resumes());
  usage.set_kv_hidden_bytes(dispatch_.kv_hidden_bytes());
  Send(response);
}

void Request::Send(const v1::GenerateResponse& response) {
  const Pace pace = spec_.ranked() || spec_.has_beams() ? Pace::kWhole : Pace::kLive;
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
  LogEnd(status);
  stream_.End(status);
  ended_callback_();
}

void Request::LogEnd(const absl::Status& status) const {
  LogInfo(
      "request id={} choices={} prompt_tokens={} completion_tokens={} resumes={} "
      "e2e_ms={:.1f} status={}",
      spec_.id, choices_.size(), spec_.sequence.prompt_size(), CompletionTokens(),
      dispatch_.resumes(), ToMilliseconds(clock_.Now() - spec_.received),
      status.ok() ? "OK" : status.ToString());
}

int32_t Request::CompletionTokens() const {
  int32_t tokens = 0;
  for (const Choice& choice : choices_) tokens += choice.completion_tokens();
  return tokens;
}

}  // namespace tandem
