#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "engine/engine.h"

namespace tandem {

// INVALID_ARGUMENT naming the first token outside of the vocabulary.
absl::Status CheckTokens(std::string_view what, std::span<const int32_t> ids, int32_t vocab_size);

// Whether a request can go on behind its so_far, if it has any.
absl::Status CheckSoFar(const EngineRequest& request, int32_t vocab_size);

}  // namespace tandem
