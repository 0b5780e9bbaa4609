#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

// One output whose length is wanted, or was observed.
struct LengthQuery {
  std::string_view tenant;  // empty: the client named none
  int32_t prompt_tokens;
  int32_t max_tokens;   // at least 1: the output is cut there
  int32_t emitted = 0;  // tokens that it has already, and after which it has not ended
};

// Tokens of the whole output, those emitted included: at least max(emitted, 1), at most max_tokens.
struct LengthForecast {
  double mean;
  double p50;
  double p90;
  int64_t observations;  // outputs that the forecast rests on; 0: it is a guess
};

// How an output ended.
enum class FinishKind : uint8_t {
  kStopped,  // by itself: this is its length
  kCapped,   // at max_tokens, or its request was cancelled or failed: it would have been longer
};

// Predicts how many tokens an output will have, from the outputs that have ended.
// Thread: one at a time (the router's loop). Its memory is bounded, whatever tenants and lengths
// there are.
class OutputLengthPredictor {
 public:
  virtual ~OutputLengthPredictor() = default;

  virtual LengthForecast Predict(const LengthQuery& query) const = 0;
  // Learns from an output of such a request that has ended with `output_tokens`, at least 1.
  virtual void Observe(const LengthQuery& request, int32_t output_tokens, FinishKind kind) = 0;
  // The number of tenants whose outputs it remembers.
  virtual int32_t tenants() const { return 0; }
};

// Learns the distribution of lengths by size of the prompt, and by tenant where there is data, and
// takes a capped output as a lower bound. `max_tenants` named tenants are kept; the one not seen
// for the longest time goes. Costs microseconds per call.
inline constexpr int32_t kDefaultMaxTenants = 256;
std::unique_ptr<OutputLengthPredictor> NewAdaptiveLengthPredictor(
    int32_t max_tenants = kDefaultMaxTenants);

// The baseline from nanoPD: the mean of the latest 50 outputs of similar prompts once there are 5,
// else of the latest 300 of all, else 256. Mean and quantiles are this one number, whatever the
// tenant. A capped output counts as if it had ended.
std::unique_ptr<OutputLengthPredictor> NewWindowLengthPredictor();

// The predictor of this name: "adaptive" or "window". NOT_FOUND lists the names.
absl::StatusOr<std::unique_ptr<OutputLengthPredictor>> NewOutputLengthPredictor(
    std::string_view name);
std::vector<std::string_view> OutputLengthPredictorNames();

}  // namespace tandem
