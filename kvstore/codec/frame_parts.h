#pragma once

#include <cstddef>
#include <span>

#include "absl/status/statusor.h"
#include "kvstore/codec/extent_parts.h"

namespace tandem {

// The sizes of K and V in one whole frame, as EncodeFrame reported them. Neither the tables nor the
// extent are needed. The payload is read as far as K reaches and is not verified. DATA_LOSS when
// `frame` is not one whole frame of an existing codec, or its payload ends within K.
absl::StatusOr<ExtentParts> PartsOfFrame(std::span<const std::byte> frame);

}  // namespace tandem
