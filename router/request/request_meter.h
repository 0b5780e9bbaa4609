#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "base/clock.h"
#include "router/attempt/dispatch.h"
#include "router/request/choice.h"
#include "router/request/request_metrics.h"
#include "router/request/request_spec.h"

namespace tandem {

// Counts one request in the metrics of its router. Thread: the router's loop. All that the
// constructor takes outlives it.
class RequestMeter {
 public:
  RequestMeter(RequestMetrics& metrics, const RequestSpec& spec) : metrics_(metrics), spec_(spec) {}

  // Tokens came for `choice`, which had `before` tokens; `gap` is the time since its previous ones.
  void OnTokens(const Choice& choice, int32_t before, Duration gap);
  // The request has ended. `longest`: the finish of its longest choice; nothing where none has
  // ended.
  void OnEnd(const absl::Status& status, const std::optional<v1::ChoiceFinish>& longest,
             int32_t completion_tokens, const AttemptReports& reports, TimePoint now);

 private:
  RequestMetrics& metrics_;
  const RequestSpec& spec_;
  bool has_token_ = false;  // a token of any choice has come
};

}  // namespace tandem
