#include "router/request/kv_fields.h"

#include <string_view>

#include "base/status.h"
#include "fmt/ranges.h"

namespace tandem {
namespace {

constexpr std::string_view kNone = "none";

// How quality class tiny evicts unless a client or the router says otherwise. Rounding costs less
// quality than eviction at equal bytes, so tiny rounds as compact does and evicts no more than its
// ratio of 5.8 on SmolLM2-135M needs. The KV of output does not travel, so it stays.
constexpr TokenEviction kTinyEviction = {.ratio = 1.15, .output = false};

}  // namespace

absl::Status CheckKvFields(const v1::GenerateRequest& request) {
  const std::string& quality = request.kv_quality();
  const std::string& eviction = request.kv_eviction();
  if (!quality.empty() && !KvQualityFromName(quality)) {
    return InvalidArgument("kv_quality=\"{}\" is unknown: use {}", quality,
                           fmt::join(kKvQualityNames, ", "));
  }
  if (eviction.empty()) return absl::OkStatus();
  const bool evicts = eviction != kNone;
  if (evicts) {
    const absl::StatusOr<TokenEviction> parsed = ParseTokenEviction(eviction);
    if (!parsed.ok()) return Annotate(parsed.status(), "kv_eviction");
  }
  if (quality == Name(KvQuality::kExact) && evicts) {
    return InvalidArgument(
        "kv_quality=\"exact\" gives up nothing, kv_eviction=\"{}\" does: leave one of them out",
        eviction);
  }
  if (quality == Name(KvQuality::kTiny) && !evicts) {
    return InvalidArgument(
        "kv_quality=\"tiny\" evicts KV, kv_eviction=\"none\" does not: use kv_quality=\"compact\"");
  }
  return absl::OkStatus();
}

KvQuality ResolveQuality(const v1::GenerateRequest& request, const KvDefaults& defaults) {
  return KvQualityFromName(request.kv_quality()).value_or(defaults.quality);
}

std::optional<TokenEviction> ResolveEviction(const v1::GenerateRequest& request,
                                             const KvDefaults& defaults) {
  if (request.kv_eviction() == kNone) return std::nullopt;
  if (!request.kv_eviction().empty()) {
    const absl::StatusOr<TokenEviction> parsed = ParseTokenEviction(request.kv_eviction());
    return parsed.ok() ? std::optional(*parsed) : std::nullopt;
  }
  if (request.kv_quality() == Name(KvQuality::kExact)) return std::nullopt;
  if (defaults.eviction) return defaults.eviction;
  if (ResolveQuality(request, defaults) == KvQuality::kTiny) return kTinyEviction;
  return std::nullopt;
}

}  // namespace tandem
