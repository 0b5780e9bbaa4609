#include "router/policy/route_query.h"

#include <algorithm>

namespace tandem {

int32_t RouteQuery::CachedTokens(const WorkerId& worker) const {
  if (hits == nullptr) return 0;
  const auto found = std::ranges::lower_bound(*hits, worker, {}, &WorkerHit::worker);
  return found != hits->end() && found->worker == worker ? found->tokens : 0;
}

}  // namespace tandem
