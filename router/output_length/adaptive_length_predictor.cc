#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "router/output_length/length_hazards.h"
#include "router/output_length/output_length_predictor.h"

namespace tandem {
namespace {

// The number of outputs after which an observation counts 1/e: small, so that forecasts follow a
// change of the load.
constexpr float kMemoryOfAll = 100;
constexpr float kMemoryOfBucket = 40;

// The number of observed outputs that the forecast of a wider class counts for when a narrower
// class refines it.
constexpr float kPriorWeight = 1;
constexpr float kWiderWeight = 3;

// One bucket for prompts of up to 64 tokens, one up to 128, and so on; the last is open.
constexpr int32_t kBuckets = 12;
int32_t BucketOf(int32_t prompt_tokens) {
  const auto above = static_cast<uint32_t>(std::max(prompt_tokens - 1, 0));
  return std::clamp(static_cast<int32_t>(std::bit_width(above)) - 6, 0, kBuckets - 1);
}

// Each class of outputs is refined by a narrower one: all outputs, those of similar prompts, and
// those of similar prompts of the same tenant.
class AdaptivePredictor final : public OutputLengthPredictor {
 public:
  explicit AdaptivePredictor(int32_t max_tenants) : max_tenants_(max_tenants) {
    for (auto& bucket : buckets_) bucket = std::make_unique<LengthHazards>(kMemoryOfBucket);
  }

  LengthForecast Predict(const LengthQuery& query) const override {
    const int32_t bucket = BucketOf(query.prompt_tokens);
    const LengthHazards& similar = *buckets_[bucket];
    BinProbabilities probabilities = PriorProbabilities();
    all_.Refine(kPriorWeight, probabilities);
    similar.Refine(kWiderWeight, probabilities);
    const auto tenant = tenants_.find(query.tenant);
    if (tenant != tenants_.end() && tenant->second.buckets[bucket] != nullptr) {
      tenant->second.buckets[bucket]->Refine(kWiderWeight, probabilities);
    }
    LengthForecast forecast = Forecast(probabilities, query.emitted, query.max_tokens);
    forecast.observations =
        similar.observations() > 0 ? similar.observations() : all_.observations();
    return forecast;
  }

  void Observe(const LengthQuery& request, int32_t output_tokens, FinishKind kind) override {
    const int32_t bucket = BucketOf(request.prompt_tokens);
    all_.Observe(output_tokens, kind);
    buckets_[bucket]->Observe(output_tokens, kind);
    // The outputs of clients without a tenant have nothing in common.
    if (request.tenant.empty()) return;
    std::unique_ptr<LengthHazards>& own = TenantOf(request.tenant).buckets[bucket];
    if (own == nullptr) own = std::make_unique<LengthHazards>(kMemoryOfBucket);
    own->Observe(output_tokens, kind);
  }

  int32_t tenants() const override { return static_cast<int32_t>(tenants_.size()); }

 private:
  using Buckets = std::array<std::unique_ptr<LengthHazards>, kBuckets>;
  struct Tenant {
    Buckets buckets;  // null where nothing was observed
    int64_t last_seen = 0;
  };

  Tenant& TenantOf(std::string_view name) {
    auto found = tenants_.find(name);
    if (found == tenants_.end()) {
      if (tenants() >= max_tenants_) ForgetOne();
      found = tenants_.try_emplace(std::string(name)).first;
    }
    found->second.last_seen = all_.observations();
    return found->second;
  }

  void ForgetOne() {
    tenants_.erase(std::min_element(
        tenants_.begin(), tenants_.end(),
        [](const auto& a, const auto& b) { return a.second.last_seen < b.second.last_seen; }));
  }

  const int32_t max_tenants_;
  LengthHazards all_{kMemoryOfAll};
  Buckets buckets_;
  std::map<std::string, Tenant, std::less<>> tenants_;
};

}  // namespace

std::unique_ptr<OutputLengthPredictor> NewAdaptiveLengthPredictor(int32_t max_tenants) {
  return std::make_unique<AdaptivePredictor>(max_tenants);
}

}  // namespace tandem
