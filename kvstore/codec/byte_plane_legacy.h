#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

// The size of the floats in a blob; a blob itself does not record it.
enum class LegacyFloats { kTwoBytes, kFourBytes };

// Decodes a blob of the earlier runtime (docs/kv_codecs.md#byte-plane): K or V of some tokens of
// one layer, [kv_head][token][head_dim]. DATA_LOSS when it is damaged or holds more than
// `most_bytes`. A blob has no hash: damage that leaves its sizes right is not seen.
absl::StatusOr<std::vector<std::byte>> DecodeLegacyBlob(LegacyFloats floats,
                                                        std::span<const std::byte> blob,
                                                        size_t most_bytes);

}  // namespace tandem
