#include "kernels/validate.h"

#include <cmath>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "fmt/format.h"
#include "kernels/validate_checks.h"

namespace tandem::validate {
namespace {

absl::Status CheckPacked(std::string_view name, const PackedMatrix& matrix) {
  if (!matrix.present()) return InvalidArgument("{} has no data", name);
  const bool is_known = IsFloat(matrix.format.dtype()) || matrix.format.has_codes();
  if (!is_known || matrix.n <= 0 || matrix.k <= 0) {
    return InvalidArgument("{} is {}[{}, {}], must be f32, f16, bf16 or int8 of positive extents",
                           name, Name(matrix.format), matrix.n, matrix.k);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Check(const PackedMatrix& dst, std::span<const TensorView> sources,
                   const TensorView& scales) {
  RETURN_IF_ERROR(CheckPacked("dst", dst));
  const bool quantises = dst.format.dtype() == DType::kI8 && !sources.empty();
  const DType dtype = quantises ? sources[0].dtype : dst.format.dtype();
  if (quantises && !IsFloat(dtype) && dtype != DType::kI8) {
    return InvalidArgument("sources[0] is {}, must be f32, f16, bf16 or i8", Name(dtype));
  }
  if (dtype == DType::kI8 || dtype == DType::kF8E4M3) {
    const int64_t groups = (dst.k + kCodeGroupInputs - 1) / kCodeGroupInputs;
    RETURN_IF_ERROR(CheckTensor("scales", scales, DType::kF32, {dst.n, groups}));
  } else if (scales.present()) {
    return InvalidArgument("scales are there, but sources[0] is {}", Name(dtype));
  }
  int64_t rows = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    RETURN_IF_ERROR(CheckTensor(fmt::format("sources[{}]", i), sources[i], dtype, {kAny, dst.k}));
    rows += sources[i].rows();
  }
  if (rows == dst.n) return absl::OkStatus();
  return InvalidArgument("sources have {} rows together, must be the {} of dst", rows, dst.n);
}

absl::Status Check(const EmbeddingArgs& a) {
  RETURN_IF_ERROR(CheckPacked("table", a.table));
  const auto num_tokens = static_cast<int64_t>(a.token_ids.size());
  RETURN_IF_ERROR(CheckTensor("out", a.out, DType::kF32, {num_tokens, a.table.k}));
  return CheckIds("token_ids", a.token_ids.host(), a.table.n);
}

absl::Status Check(const RmsNormArgs& a, ActivationTypeOf activation_type) {
  RETURN_IF_ERROR(CheckTensor("x", a.x, DType::kF32, {kAny, kAny}));
  if (a.x.shape[1] == 0) return InvalidArgument("x has rows of no elements");
  RETURN_IF_ERROR(CheckTensor("weight", a.weight, DType::kF32, {a.x.shape[1]}));
  RETURN_IF_ERROR(CheckActivation("out", a.out, activation_type, {a.x.shape[0], a.x.shape[1]}));
  if (!(a.eps >= 0) || std::isinf(a.eps)) {
    return InvalidArgument("eps is {}, must be finite and not negative", a.eps);
  }
  const bool in_place =
      a.out.data == a.x.data && a.out.row_stride == a.x.row_stride && a.out.dtype == a.x.dtype;
  if (!in_place && !Disjoint(a.x, a.out)) {
    return InvalidArgument("out overlaps x: must be the same rows or none of them");
  }
  return absl::OkStatus();
}

absl::Status Check(const RopeArgs& a, ActivationTypeOf activation_type) {
  RETURN_IF_ERROR(CheckActivation("q", a.q, activation_type, {kAny, kAny, kAny}));
  const int64_t num_tokens = a.q.shape[0];
  const int64_t head_dim = a.q.shape[2];
  if (head_dim <= 0 || head_dim % 2 != 0) {
    return InvalidArgument("q has head_dim {}, must be even and positive", head_dim);
  }
  RETURN_IF_ERROR(CheckTensor("k", a.k, a.q.dtype, {num_tokens, kAny, head_dim}));
  RETURN_IF_ERROR(CheckTensor("cos", a.cos, DType::kF32, {kAny, head_dim / 2}));
  RETURN_IF_ERROR(CheckTensor("sin", a.sin, DType::kF32, {a.cos.shape[0], head_dim / 2}));
  if (std::ssize(a.positions.host()) != num_tokens) {
    return InvalidArgument("positions has {} entries, must have the {} of q", a.positions.size(),
                           num_tokens);
  }
  RETURN_IF_ERROR(CheckIds("positions", a.positions.host(), a.cos.shape[0]));
  for (const auto& [name, norm] : {std::pair("q_norm", &a.q_norm), {"k_norm", &a.k_norm}}) {
    if (norm->present()) RETURN_IF_ERROR(CheckTensor(name, *norm, DType::kF32, {head_dim}));
  }
  if (!(a.norm_eps >= 0) || std::isinf(a.norm_eps)) {
    return InvalidArgument("norm_eps is {}, must be finite and not negative", a.norm_eps);
  }
  if (!Disjoint(a.q, a.k)) return InvalidArgument("k overlaps q: must be apart");
  return absl::OkStatus();
}

absl::Status Check(const GemmArgs& a, ActivationTypeOf activation_type) {
  RETURN_IF_ERROR(CheckPacked("weight", a.weight));
  RETURN_IF_ERROR(CheckActivation("x", a.x, activation_type, {kAny, a.weight.k}));
  const bool as_weight = a.weight.format == WeightFormat(a.x.dtype);
  if (a.x.dtype != DType::kF32 && !as_weight && !a.weight.format.has_codes()) {
    return InvalidArgument("x is {}, must be f32 or as the weight, {}", Name(a.x.dtype),
                           Name(a.weight.format));
  }
  const bool f32_out = a.output == GemmOutput::kAccumulate || a.out.dtype == DType::kF32;
  RETURN_IF_ERROR(
      CheckTensor("out", a.out, f32_out ? DType::kF32 : a.x.dtype, {a.x.shape[0], a.weight.n}));
  if (a.bias.present()) {
    RETURN_IF_ERROR(CheckTensor("bias", a.bias, DType::kF32, {a.weight.n}));
  }
  if (!Disjoint(a.x, a.out)) return InvalidArgument("out overlaps x: must be apart");
  return absl::OkStatus();
}

absl::Status Check(const SiluMulArgs& a, ActivationTypeOf activation_type) {
  RETURN_IF_ERROR(CheckActivation("out", a.out, activation_type, {kAny, kAny}));
  RETURN_IF_ERROR(
      CheckTensor("gate_up", a.gate_up, a.out.dtype, {a.out.shape[0], 2 * a.out.shape[1]}));
  if (!Disjoint(a.gate_up, a.out)) return InvalidArgument("out overlaps gate_up: must be apart");
  return absl::OkStatus();
}

}  // namespace tandem::validate
