#include "kvstore/eviction_policy.h"

#include "base/check.h"

namespace tandem {

std::string_view Name(EvictionKind kind) {
  switch (kind) {
    case EvictionKind::kLru:
      return "lru";
    case EvictionKind::kCostAware:
      return "cost_aware";
  }
  TANDEM_CHECK(false, "no such eviction policy");
}

std::unique_ptr<EvictionPolicy> NewEvictionPolicy(EvictionKind kind) {
  switch (kind) {
    case EvictionKind::kLru:
      return NewLruEviction();
    case EvictionKind::kCostAware:
      return NewCostAwareEviction();
  }
  TANDEM_CHECK(false, "no such eviction policy");
}

}  // namespace tandem
