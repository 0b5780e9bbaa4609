#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "kernels/op_args.h"
#include "kernels/ops.h"

// What the checks of several ops are made of (kernels/validate.h).

namespace tandem::validate {

inline constexpr int64_t kAny = -1;

bool IsFloat(DType dtype);

// `shape` holds kAny where every extent is right. A tensor without elements needs no memory.
absl::Status CheckTensor(std::string_view name, const TensorView& tensor, DType dtype,
                         std::initializer_list<int64_t> shape);
// A tensor of activations; its type is whatever `ops` takes.
absl::Status CheckActivation(std::string_view name, const TensorView& tensor, const Ops& ops,
                             std::initializer_list<int64_t> shape);
// True also for slices of one fused tensor whose columns are apart: those share no element.
bool Disjoint(const TensorView& a, const TensorView& b);
absl::Status CheckPool(const KvPoolView& pool);
absl::Status CheckIndex(std::string_view name, int64_t value, int64_t count);
absl::Status CheckIds(std::string_view name, std::span<const int32_t> ids, int64_t count);

}  // namespace tandem::validate
