#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "router/choice.h"
#include "router/response_stream.h"

namespace tandem {

// One client's request, everything resolved.
struct RequestSpec {
  std::string id;  // for logs and the summary
  std::string model;
  uint64_t seed = 0;
  std::vector<ChoiceSpec> choices;
};

// A request in flight: its choices, and the one ending that they have together. The first choice
// that fails ends all of them.
// Thread: the router's loop.
class Request final : public ChoiceObserver {
 public:
  // `ended` is called once, after the stream's End; it may destroy the request only later.
  Request(const RouterParts& parts, RequestSpec spec, ResponseStream& stream,
          std::function<void()> ended);

  void Start();
  // The client is gone or the router stops: ends with `status` and cancels the work.
  void Cancel(const absl::Status& status) { End(status); }
  void OnWorkersLost(const std::vector<WorkerId>& lost);

  void OnChunk(v1::Chunk chunk) override;
  void OnChoiceFinished(v1::ChoiceFinish finish) override;
  void OnChoiceFailed(const absl::Status& status) override;

 private:
  void Send(const v1::GenerateResponse& response);
  void SendSummary();
  void End(const absl::Status& status);
  void LogEnd(const absl::Status& status) const;

  const RequestSpec spec_;
  const Clock& clock_;
  ResponseStream& stream_;
  const std::function<void()> ended_callback_;
  std::vector<std::unique_ptr<Choice>> choices_;
  size_t num_finished_ = 0;
  bool ended_ = false;
};

}  // namespace tandem
