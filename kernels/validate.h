#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/op_args.h"
#include "kernels/validate_checks.h"

// The checks of every op's arguments, the same for all backends: INVALID_ARGUMENT naming the
// argument, what it is and what it must be. They are cheap beside the op: shapes, types, overlaps
// and the range of indices, never the values of a tensor.

namespace tandem::validate {

enum class QueryRows : uint8_t { kAnyNumber, kOneEach };

absl::Status Check(const PackedMatrix& dst, std::span<const TensorView> sources,
                   const TensorView& scales);
absl::Status Check(const EmbeddingArgs& a);
absl::Status Check(const RmsNormArgs& a, ActivationTypeOf activation_type);
absl::Status Check(const RopeArgs& a, ActivationTypeOf activation_type);
absl::Status Check(const GemmArgs& a, ActivationTypeOf activation_type);
absl::Status Check(const SiluMulArgs& a, ActivationTypeOf activation_type);
absl::Status Check(const StoreKvArgs& a, ActivationTypeOf activation_type);
absl::Status Check(const AttentionArgs& a, ActivationTypeOf activation_type, QueryRows query_rows);
absl::Status Check(const ColumnMassArgs& a, ActivationTypeOf activation_type);
absl::Status Check(const CopyBlocksArgs& a);
absl::Status Check(const CopyTokensArgs& a);
absl::Status Check(const MoveBlocksArgs& a);
absl::Status Check(const ConvertKvArgs& a);
absl::Status Check(const SampleArgs& a);

}  // namespace tandem::validate
