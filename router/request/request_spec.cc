#include "router/request/request_spec.h"

#include "base/token_eviction.h"

namespace tandem {

int32_t RequestSpec::evicted_tokens() const {
  const auto eviction = ParseTokenEviction(sequence.kv_eviction());
  if (!eviction.ok()) return 0;  // an empty text: no eviction
  return sequence.prompt_size() - eviction->StoredTokens(sequence.prompt_size());
}

}  // namespace tandem
