#include "router/request.h"

#include <utility>

#include "base/status.h"
#include "spdlog/spdlog.h"

namespace tandem {

Request::Request(const RouterParts& parts, RequestSpec spec, ResponseStream& stream,
                 std::function<void()> ended)
    : spec_(std::move(spec)),
      clock_(parts.clock),
      stream_(stream),
      ended_callback_(std::move(ended)) {
  for (const ChoiceSpec& choice : spec_.choices) {
    choices_.push_back(std::make_unique<Choice>(parts, choice, *this));
  }
}

void Request::Start() {
  for (auto& choice : choices_) {
    if (ended_) return;
    choice->Start();
  }
}

void Request::OnWorkersLost(const std::vector<WorkerId>& lost) {
  for (auto& choice : choices_) {
    if (!choice->ended()) choice->OnWorkersLost(lost);
  }
}

void Request::OnChunk(v1::Chunk chunk) {
  v1::GenerateResponse response;
  *response.mutable_chunk() = std::move(chunk);
  Send(response);
}

void Request::OnChoiceFinished(v1::ChoiceFinish finish) {
  v1::GenerateResponse response;
  *response.mutable_finish() = std::move(finish);
  Send(response);
  if (ended_ || ++num_finished_ < choices_.size()) return;
  SendSummary();
  End(absl::OkStatus());
}

void Request::OnChoiceFailed(const absl::Status& status) { End(status); }

void Request::Send(const v1::GenerateResponse& response) {
  if (ended_ || stream_.Send(response)) return;
  End(ResourceExhausted("the client reads too slowly: its stream's buffer is full"));
}

void Request::SendSummary() {
  v1::GenerateResponse response;
  v1::Summary& summary = *response.mutable_summary();
  summary.set_request_id(spec_.id);
  summary.set_model(spec_.model);
  summary.set_seed(spec_.seed);
  int32_t completion_tokens = 0;
  for (const auto& choice : choices_) completion_tokens += choice->completion_tokens();
  summary.mutable_usage()->set_prompt_tokens(choices_[0]->spec().sequence.prompt_size());
  summary.mutable_usage()->set_completion_tokens(completion_tokens);
  Send(response);
}

void Request::End(const absl::Status& status) {
  if (ended_) return;
  ended_ = true;
  for (auto& choice : choices_) choice->Abandon();
  LogEnd(status);
  stream_.End(status);
  ended_callback_();
}

void Request::LogEnd(const absl::Status& status) const {
  const ChoiceSpec& first = spec_.choices[0];
  int32_t completion_tokens = 0;
  for (const auto& choice : choices_) completion_tokens += choice->completion_tokens();
  spdlog::info(
      "request id={} choices={} prompt_tokens={} completion_tokens={} e2e_ms={:.1f} "
      "status={}",
      spec_.id, choices_.size(), first.sequence.prompt_size(), completion_tokens,
      ToMilliseconds(clock_.Now() - first.received), status.ok() ? "OK" : status.ToString());
}

}  // namespace tandem
