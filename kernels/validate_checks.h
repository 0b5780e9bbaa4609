#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kernels/op_args.h"

// Checks that those of several ops (kernels/validate.h) share.

namespace tandem::validate {

inline constexpr int64_t kAny = -1;

// The type in which a backend keeps activations beside weights of a type (Ops::ActivationType).
using ActivationTypeOf = absl::FunctionRef<DType(DType weights)>;

bool IsFloat(DType dtype);

// Checks type and shape; `shape` holds kAny where every extent is right. A tensor without elements
// needs no memory.
absl::Status CheckTensor(std::string_view name, const TensorView& tensor, DType dtype,
                         std::initializer_list<int64_t> shape);
// Checks a tensor of activations, which may have any type that the backend takes.
absl::Status CheckActivation(std::string_view name, const TensorView& tensor,
                             ActivationTypeOf activation_type,
                             std::initializer_list<int64_t> shape);
// Whether no element is shared. True also for slices of one fused tensor whose columns are apart.
bool Disjoint(const TensorView& a, const TensorView& b);
absl::Status CheckPool(const KvPoolView& pool);
absl::Status CheckIndex(std::string_view name, int64_t value, int64_t count);
absl::Status CheckIds(std::string_view name, std::span<const int32_t> ids, int64_t count);

}  // namespace tandem::validate
