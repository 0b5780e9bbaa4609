#pragma once

#include <optional>

#include "absl/status/status.h"
#include "base/kv_quality.h"
#include "base/token_eviction.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// Checks kv_quality and kv_eviction of a request. INVALID_ARGUMENT names the one that is unknown,
// or both where they contradict each other.
absl::Status CheckKvFields(const v1::GenerateRequest& request);

// The router's quality and eviction of KV, for requests that do not choose their own.
struct KvDefaults {
  KvQuality quality = KvQuality::kExact;
  std::optional<TokenEviction> eviction;
};

// Resolve what KV may lose on its way, and how it is given up at the end of the prompt: as the
// client wants it, else as the router does. A client that wants quality exact gives up nothing;
// class tiny evicts by snapkv:1.15,output=keep where neither says how. The request passed
// CheckKvFields.
KvQuality ResolveQuality(const v1::GenerateRequest& request, const KvDefaults& defaults);
std::optional<TokenEviction> ResolveEviction(const v1::GenerateRequest& request,
                                             const KvDefaults& defaults);

}  // namespace tandem
