#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "router/attempt/dispatch.h"
#include "router/request/choice.h"
#include "router/request/request_meter.h"
#include "router/request/request_spec.h"
#include "router/request/response_stream.h"

namespace tandem {

// A request in flight: its choices as its client sees them, and the one ending that they share.
// Choices are streamed while they are generated; where the client wants only the best of them, they
// are sent once all have ended.
// Thread: the router's loop.
class Request final : public DispatchObserver {
 public:
  // `parts` outlives it. `ended` is called once, after the stream's End; it may destroy the request
  // only later. `waits` is called whenever the request begins to wait for news of the workers: it
  // needs OnClusterChanged from then on, as long as waits().
  Request(const RouterParts& parts, RequestSpec spec, ResponseStream& stream,
          std::function<void()> ended, std::function<void(Request&)> waits);

  void Start() { dispatch_.Start(); }
  // The client is gone or the router stops: ends with `status` and cancels the work.
  void Cancel(const absl::Status& status) { End(status); }
  // Events of the cluster, which are passed on to Dispatch (router/attempt/dispatch.h).
  void OnWorkersLost(const std::vector<WorkerId>& lost, const CallEnd& end);
  void OnWorkersLeaving(const std::vector<WorkerId>& leaving);
  void OnClusterChanged();
  bool waits() const { return dispatch_.waits(); }

  void OnTokens(const v1::WorkerTokens& tokens, const v1::StageTimes& stages) override;
  void OnChoiceEnded(const v1::WorkerChoiceFinish& finish) override;
  void OnPromptLogprobs(const v1::PromptLogprobs& logprobs) override;
  bool NeedsDecode() const override;
  void OnAccounted() override;
  void OnWaits() override { waits_callback_(*this); }
  void OnFinished() override;
  void OnFailed(const absl::Status& status) override { End(status); }

 private:
  struct ChoiceState {
    Choice choice;
    bool finish_sent = false;
    std::vector<v1::Chunk> unsent;  // until the best choices are known, where only they are sent
  };

  void TakeChunk(v1::Chunk chunk);
  void OnChoiceOver(const Choice& choice);
  // Adds the length of an output that is over to the router's length forecasts.
  void ObserveLength(const Choice& choice);
  v1::ChoiceFinish MakeFinish(const Choice& choice);
  // Sends the finishes of the choices that have ended, each once.
  void SendFinishes();
  void SendBest();
  void SendSummary();
  void Send(const v1::GenerateResponse& response);
  void End(const absl::Status& status);
  // Records how the request ended, in the log of decisions and in its trace.
  void RecordEnd(const absl::Status& status);
  int32_t CompletionTokens() const;

  const RequestSpec spec_;
  const Clock& clock_;
  const RouterParts& parts_;
  RequestMeter meter_;
  ResponseStream& stream_;
  const std::function<void()> ended_callback_;
  const std::function<void(Request&)> waits_callback_;
  std::vector<ChoiceState> choices_;
  std::optional<v1::ChoiceFinish> longest_;  // of the choices whose finishes were made so far
  Dispatch dispatch_;
  const LengthForecast forecast_;  // of each choice, when the request came
  bool ended_ = false;
};

}  // namespace tandem
