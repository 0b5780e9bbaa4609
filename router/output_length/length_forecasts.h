#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "router/output_length/output_length_predictor.h"
#include "tandem/v1/telemetry.pb.h"

namespace tandem {

// The output length predictor of a router, and how well its forecasts came true.
// Thread: the router's loop; Use is thread-safe.
class LengthForecasts {
 public:
  // predictor: as for NewOutputLengthPredictor. NOT_FOUND lists the names.
  static absl::StatusOr<std::unique_ptr<LengthForecasts>> New(std::string_view predictor);
  LengthForecasts(std::string_view name, std::unique_ptr<OutputLengthPredictor> predictor);

  LengthForecast Predict(const LengthQuery& query) const { return predictor_->Predict(query); }

  // An output has ended with `output_tokens`, at least 1. forecast: what was predicted when its
  // request came.
  void OnEnded(const LengthQuery& request, const LengthForecast& forecast, int32_t output_tokens,
               FinishKind kind);
  // An output was interrupted after `output_tokens` (at least 1), because its request was cancelled
  // or has failed: whether its forecast was right will never be known.
  void OnInterrupted(const LengthQuery& request, int32_t output_tokens);

  v1::OutputLengthUse Use() const;

 private:
  static constexpr size_t kOutcomes = 1000;  // the latest outcomes are kept, at most this many
  struct Outcome {
    LengthForecast forecast;
    int32_t tokens;
  };

  const std::string name_;
  const std::unique_ptr<OutputLengthPredictor> predictor_;

  mutable absl::Mutex mutex_;
  v1::OutputLengthUse counts_ ABSL_GUARDED_BY(mutex_);  // all but the figures of outcomes_
  std::vector<Outcome> outcomes_ ABSL_GUARDED_BY(mutex_);
  uint64_t num_outcomes_ ABSL_GUARDED_BY(mutex_) = 0;  // since the start, kept or not
};

}  // namespace tandem
