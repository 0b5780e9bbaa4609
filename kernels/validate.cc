#include "kernels/validate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

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

absl::Status CheckRange(std::string_view name, size_t row, float value, std::string_view range,
                        bool inside) {
  if (inside) return absl::OkStatus();
  return InvalidArgument("rows[{}].{} is {}, must be {}", row, name, value, range);
}

// The biases are not checked for tokens that occur twice: sorting them for every token would cost
// more than applying them.
absl::Status CheckConstraints(const SampleRow& r, size_t row, int64_t vocab) {
  if (r.given_token < -1 || r.given_token >= vocab) {
    return InvalidArgument("rows[{}].given_token is {}, must be -1 or in [0, {})", row,
                           r.given_token, vocab);
  }
  if (r.biases.size() > kMaxLogitBiases) {
    return InvalidArgument("rows[{}] has {} biases, must have at most {}", row, r.biases.size(),
                           kMaxLogitBiases);
  }
  for (const TokenBias& entry : r.biases) {
    if (entry.token_id < 0 || entry.token_id >= vocab) {
      return InvalidArgument("rows[{}].biases names token {}, must be in [0, {})", row,
                             entry.token_id, vocab);
    }
    RETURN_IF_ERROR(CheckRange("biases", row, entry.bias, "in [-100, 100]",
                               std::abs(entry.bias) <= kMaxLogitBias));
  }
  if (!HasExclusions(r)) return absl::OkStatus();
  RETURN_IF_ERROR(CheckIds(fmt::format("rows[{}].excluded_ids", row), r.excluded_ids, vocab));
  return CheckIds(fmt::format("rows[{}].allowed_ids", row), r.allowed_ids, vocab);
}

absl::Status CheckRow(const SampleRow& r, size_t row, int64_t vocab) {
  RETURN_IF_ERROR(CheckRange("temperature", row, r.temperature, "finite and not negative",
                             std::isfinite(r.temperature) && r.temperature >= 0));
  RETURN_IF_ERROR(CheckRange("top_p", row, r.top_p, "in (0, 1]", r.top_p > 0 && r.top_p <= 1));
  RETURN_IF_ERROR(CheckRange("min_p", row, r.min_p, "in [0, 1)", r.min_p >= 0 && r.min_p < 1));
  RETURN_IF_ERROR(CheckRange("repetition_penalty", row, r.repetition_penalty, "finite and positive",
                             std::isfinite(r.repetition_penalty) && r.repetition_penalty > 0));
  RETURN_IF_ERROR(CheckRange("presence_penalty", row, r.presence_penalty, "finite",
                             std::isfinite(r.presence_penalty)));
  RETURN_IF_ERROR(CheckRange("frequency_penalty", row, r.frequency_penalty, "finite",
                             std::isfinite(r.frequency_penalty)));
  if (r.top_k < 0) return InvalidArgument("rows[{}].top_k is {}, must be 0 or more", row, r.top_k);
  if (r.position < 0) {
    return InvalidArgument("rows[{}].position is {}, must be 0 or more", row, r.position);
  }
  if (r.num_logprobs < -1 || r.num_logprobs > vocab) {
    return InvalidArgument("rows[{}].num_logprobs is {}, must be from -1 to {}", row,
                           r.num_logprobs, vocab);
  }
  RETURN_IF_ERROR(CheckConstraints(r, row, vocab));
  if (!HasPenalties(r)) return absl::OkStatus();
  RETURN_IF_ERROR(CheckIds(fmt::format("rows[{}].prompt_ids", row), r.prompt_ids, vocab));
  return CheckIds(fmt::format("rows[{}].output_ids", row), r.output_ids, vocab);
}

// Checks that no target is written twice or read. Linear in the lists, which are long where a
// context is pruned.
absl::Status CheckTargets(const CopyTokensArgs& a, int64_t num_slots) {
  std::vector<bool> written(static_cast<size_t>(num_slots));
  for (int32_t slot : a.to) {
    if (written[static_cast<size_t>(slot)]) {
      return InvalidArgument("to names slot {} twice, must name each slot once", slot);
    }
    written[static_cast<size_t>(slot)] = true;
  }
  for (size_t i = 0; i < a.from.size(); ++i) {
    if (!written[static_cast<size_t>(a.from[i])]) continue;
    return InvalidArgument("from[{}] in layer {} is slot {}, must be none of the slots of to",
                           i % a.to.size(), i / a.to.size(), a.from[i]);
  }
  return absl::OkStatus();
}

// Checks that tokens [first, first + count) lie in a block of `block_tokens`.
absl::Status CheckTokens(std::string_view name, int32_t first, int32_t count,
                         int32_t block_tokens) {
  if (first >= 0 && count > 0 && first <= block_tokens - count) return absl::OkStatus();
  return InvalidArgument("{} is {} and num_tokens {}, must lie in a block of {}", name, first,
                         count, block_tokens);
}

absl::Status CheckRun(const ConvertKvArgs& a, const KvRun& run, size_t src_bytes) {
  if (run.src.size() != src_bytes) {
    return InvalidArgument("src has {} bytes, must be an extent of {}", run.src.size(), src_bytes);
  }
  if (reinterpret_cast<uintptr_t>(run.src.data()) % 16 != 0) {
    return InvalidArgument("src begins at {}, must begin on a multiple of 16 bytes",
                           static_cast<const void*>(run.src.data()));
  }
  RETURN_IF_ERROR(CheckIndex("dst.layer", run.dst.layer, a.pool.num_layers));
  RETURN_IF_ERROR(CheckIndex("dst.block", run.dst.block, a.pool.num_blocks));
  RETURN_IF_ERROR(CheckTokens("src_token", run.src_token, run.num_tokens, a.src_block_tokens));
  RETURN_IF_ERROR(CheckTokens("dst_token", run.dst_token, run.num_tokens, a.pool.block_tokens));
  const std::byte* pool_end = a.pool.Extent(a.pool.num_layers, 0);
  if (run.src.data() < pool_end && a.pool.data < run.src.data() + run.src.size()) {
    return InvalidArgument("src overlaps the pool: must be apart");
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

absl::Status Check(const StoreKvArgs& a, ActivationTypeOf activation_type) {
  RETURN_IF_ERROR(CheckPool(a.pool));
  RETURN_IF_ERROR(CheckIndex("layer", a.layer, a.pool.num_layers));
  const auto num_tokens = static_cast<int64_t>(a.slots.size());
  for (const auto& [name, tensor] : {std::pair("k", &a.k), {"v", &a.v}}) {
    RETURN_IF_ERROR(CheckActivation(name, *tensor, activation_type,
                                    {num_tokens, a.pool.num_kv_heads, a.pool.head_dim}));
  }
  if (a.v.dtype != a.k.dtype) {
    return InvalidArgument("v is {}, must be as k, {}", Name(a.v.dtype), Name(a.k.dtype));
  }
  const int64_t num_slots = int64_t{a.pool.num_blocks} * a.pool.block_tokens;
  for (size_t i = 0; i < a.slots.size(); ++i) {
    if (a.slots[i] < -1 || a.slots[i] >= num_slots) {
      return InvalidArgument("slots[{}] is {}, must be -1 or in [0, {})", i, a.slots[i], num_slots);
    }
  }
  return absl::OkStatus();
}

absl::Status Check(const CopyBlocksArgs& a) {
  RETURN_IF_ERROR(CheckPool(a.pool));
  std::vector<int32_t> targets;
  targets.reserve(a.pairs.size());
  for (size_t i = 0; i < a.pairs.size(); ++i) {
    const auto& [from, to] = a.pairs[i];
    RETURN_IF_ERROR(CheckIndex(fmt::format("pairs[{}].from", i), from, a.pool.num_blocks));
    RETURN_IF_ERROR(CheckIndex(fmt::format("pairs[{}].to", i), to, a.pool.num_blocks));
    targets.push_back(to);
  }
  std::sort(targets.begin(), targets.end());
  if (auto twice = std::adjacent_find(targets.begin(), targets.end()); twice != targets.end()) {
    return InvalidArgument("pairs write block {} twice, must write each block once", *twice);
  }
  for (const auto& [from, to] : a.pairs) {
    if (std::binary_search(targets.begin(), targets.end(), from)) {
      return InvalidArgument("pairs read and write block {}, must do one of the two", from);
    }
  }
  return absl::OkStatus();
}

absl::Status Check(const CopyTokensArgs& a) {
  RETURN_IF_ERROR(CheckPool(a.pool));
  constexpr int64_t kMaxSlots = std::numeric_limits<int32_t>::max();
  const int64_t num_slots = int64_t{a.pool.num_blocks} * a.pool.block_tokens;
  if (num_slots > kMaxSlots) {
    return InvalidArgument("pool has {} blocks of {} tokens, must have at most {} slots together",
                           a.pool.num_blocks, a.pool.block_tokens, kMaxSlots);
  }
  if (a.from.size() != a.to.size() * static_cast<size_t>(a.pool.num_layers)) {
    return InvalidArgument("from has {} slots, must have the {} of to for each of {} layers",
                           a.from.size(), a.to.size(), a.pool.num_layers);
  }
  RETURN_IF_ERROR(CheckIds("to", a.to, num_slots));
  RETURN_IF_ERROR(CheckIds("from", a.from, num_slots));
  return CheckTargets(a, num_slots);
}

absl::Status Check(const MoveBlocksArgs& a) {
  RETURN_IF_ERROR(CheckPool(a.pool));
  for (size_t i = 0; i < a.items.size(); ++i) {
    const LayerBlock& item = a.items[i];
    if (item.layer < 0 || item.layer >= a.pool.num_layers || item.block < 0 ||
        item.block >= a.pool.num_blocks) {
      return InvalidArgument("items[{}] is layer {} block {}, must be below {} and {}", i,
                             item.layer, item.block, a.pool.num_layers, a.pool.num_blocks);
    }
  }
  const auto wanted = static_cast<size_t>(a.pool.ExtentBytes()) * a.items.size();
  if (a.staging.size() != wanted) {
    return InvalidArgument("staging has {} bytes, must have the {} of {} items", a.staging.size(),
                           wanted, a.items.size());
  }
  const std::byte* pool_end = a.pool.Extent(a.pool.num_layers, 0);
  if (!a.staging.empty() && a.staging.data() < pool_end &&
      a.pool.data < a.staging.data() + a.staging.size()) {
    return InvalidArgument("staging overlaps the pool: must be apart");
  }
  return absl::OkStatus();
}

absl::Status Check(const ConvertKvArgs& a) {
  RETURN_IF_ERROR(CheckPool(a.pool));
  const KvPoolView source = a.AsSource();
  RETURN_IF_ERROR(Annotate(CheckPool(source), "the layout of the sources"));
  if (!Widens(a.src_dtype, a.pool.dtype) && !Quantises(a.src_dtype, a.pool.dtype)) {
    return InvalidArgument(
        "src_dtype is {}, must be {}, a type of which each value is one of {}, or one that is "
        "rounded "
        "to it",
        Name(a.src_dtype), Name(a.pool.dtype), Name(a.pool.dtype));
  }
  if (a.pool.k_scale != 1 || a.pool.v_scale != 1) {
    return InvalidArgument("pool has scales {} and {}, must be 1", a.pool.k_scale, a.pool.v_scale);
  }
  const auto src_bytes = static_cast<size_t>(source.ExtentBytes());
  for (size_t i = 0; i < a.runs.size(); ++i) {
    RETURN_IF_ERROR(Annotate(CheckRun(a, a.runs[i], src_bytes), fmt::format("runs[{}]", i)));
  }
  return absl::OkStatus();
}

absl::Status Check(const SampleArgs& a) {
  const auto num_rows = static_cast<int64_t>(a.rows.size());
  RETURN_IF_ERROR(CheckTensor("logits", a.logits, DType::kF32, {num_rows, kAny}));
  const int64_t vocab = a.logits.shape[1];
  if (vocab == 0) return InvalidArgument("logits has rows of no elements");
  if (a.out.size() != a.rows.size()) {
    return InvalidArgument("out has {} entries, must have the {} of rows", a.out.size(), num_rows);
  }
  for (size_t row = 0; row < a.rows.size(); ++row) {
    RETURN_IF_ERROR(CheckRow(a.rows[row], row, vocab));
  }
  return absl::OkStatus();
}

}  // namespace tandem::validate
