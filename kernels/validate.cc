#include "kernels/validate.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "fmt/format.h"

namespace tandem::validate {
namespace {

constexpr int64_t kAny = -1;

bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

std::string Describe(DType dtype, std::span<const int64_t> shape) {
  std::string text(Name(dtype));
  for (size_t i = 0; i < shape.size(); ++i) {
    text += i == 0 ? "[" : ", ";
    text += shape[i] == kAny ? "*" : fmt::format("{}", shape[i]);
  }
  return text + "]";
}

// `shape` holds kAny where every extent is right. A tensor without elements needs no memory.
absl::Status CheckTensor(std::string_view name, const TensorView& tensor, DType dtype,
                         std::initializer_list<int64_t> shape) {
  const std::span<const int64_t> wanted(shape.begin(), shape.size());
  bool same = tensor.dtype == dtype && tensor.rank == static_cast<int>(shape.size());
  int64_t elements = 1;
  for (int i = 0; same && i < tensor.rank; ++i) {
    same = tensor.shape[i] >= 0 && (wanted[i] == kAny || wanted[i] == tensor.shape[i]);
    elements *= tensor.shape[i];
  }
  if (!same) {
    const std::span<const int64_t> found(tensor.shape.data(), tensor.rank);
    return InvalidArgument("{} is {}, must be {}", name, Describe(tensor.dtype, found),
                           Describe(dtype, wanted));
  }
  if (elements > 0 && !tensor.present()) return InvalidArgument("{} has no data", name);
  if (tensor.rows() > 1 && tensor.row_stride < tensor.RowElements()) {
    return InvalidArgument("{} has a row stride of {}, must be at least {}", name,
                           tensor.row_stride, tensor.RowElements());
  }
  return absl::OkStatus();
}

// A tensor of activations; its type is whatever `ops` takes.
absl::Status CheckActivation(std::string_view name, const TensorView& tensor, const Ops& ops,
                             std::initializer_list<int64_t> shape) {
  if (tensor.dtype != DType::kF32 &&
      (!IsFloat(tensor.dtype) || ops.ActivationType(tensor.dtype) != tensor.dtype)) {
    return InvalidArgument("{} is {}, which this device does not compute in; f32 it does", name,
                           Name(tensor.dtype));
  }
  return CheckTensor(name, tensor, tensor.dtype, shape);
}

struct ByteRange {
  const std::byte* begin;
  const std::byte* end;
};

ByteRange Bytes(const TensorView& tensor) {
  const auto* begin = static_cast<const std::byte*>(tensor.data);
  if (tensor.rows() == 0) return {begin, begin};
  const int64_t last = (tensor.rows() - 1) * tensor.row_stride + tensor.RowElements();
  return {begin, begin + last * SizeOf(tensor.dtype)};
}

// True also for slices of one fused tensor whose columns are apart: those share no element.
bool Disjoint(const TensorView& a, const TensorView& b) {
  const ByteRange x = Bytes(a);
  const ByteRange y = Bytes(b);
  if (x.begin == x.end || y.begin == y.end || x.end <= y.begin || y.end <= x.begin) return true;
  const int64_t stride = a.row_stride * SizeOf(a.dtype);
  if (stride != b.row_stride * SizeOf(b.dtype)) return false;
  const int64_t apart = y.begin - x.begin;
  const int64_t offset = (apart % stride + stride) % stride;
  return offset >= a.RowElements() * SizeOf(a.dtype) &&
         offset + b.RowElements() * SizeOf(b.dtype) <= stride;
}

absl::Status CheckPacked(std::string_view name, const PackedMatrix& matrix) {
  if (!matrix.present()) return InvalidArgument("{} has no data", name);
  if (!IsFloat(matrix.dtype) || matrix.n <= 0 || matrix.k <= 0) {
    return InvalidArgument("{} is {}[{}, {}], must be f32, f16 or bf16 of positive extents", name,
                           Name(matrix.dtype), matrix.n, matrix.k);
  }
  return absl::OkStatus();
}

absl::Status CheckPool(const KvPoolView& pool) {
  if (pool.data == nullptr) return InvalidArgument("pool has no data");
  if (!IsFloat(pool.dtype) && pool.dtype != DType::kF8E4M3) {
    return InvalidArgument("pool is of {}, must be f32, f16, bf16 or f8e4m3", Name(pool.dtype));
  }
  for (const auto& [name, scale] :
       {std::pair("k_scale", pool.k_scale), {"v_scale", pool.v_scale}}) {
    const bool right = pool.dtype == DType::kF8E4M3 ? scale > 0 && std::isfinite(scale) : scale == 1;
    if (!right) {
      return InvalidArgument("pool has a {} of {}, must be {}", name, scale,
                             pool.dtype == DType::kF8E4M3 ? "finite and positive" : "1");
    }
  }
  if (pool.num_layers <= 0 || pool.num_blocks <= 0 || pool.num_kv_heads <= 0) {
    return InvalidArgument("pool has {} layers, {} blocks and {} KV heads, must be positive",
                           pool.num_layers, pool.num_blocks, pool.num_kv_heads);
  }
  const int32_t tokens = pool.block_tokens;
  if (tokens < 8 || tokens > 256 || (tokens & (tokens - 1)) != 0) {
    return InvalidArgument("pool has block_tokens {}, must be a power of two from 8 to 256",
                           tokens);
  }
  if (pool.head_dim <= 0 || pool.head_dim > 256 || pool.head_dim % 8 != 0) {
    return InvalidArgument("pool has head_dim {}, must be a multiple of 8 up to 256",
                           pool.head_dim);
  }
  return absl::OkStatus();
}

absl::Status CheckIndex(std::string_view name, int64_t value, int64_t count) {
  if (value >= 0 && value < count) return absl::OkStatus();
  return InvalidArgument("{} is {}, must be in [0, {})", name, value, count);
}

absl::Status CheckIds(std::string_view name, std::span<const int32_t> ids, int64_t count) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= count) {
      return InvalidArgument("{}[{}] is {}, must be in [0, {})", name, i, ids[i], count);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckStarts(const BlockTables& tables, size_t num_seqs) {
  if (tables.starts.size() != num_seqs + 1) {
    return InvalidArgument("block_tables.starts has {} entries, must have {}, one more than "
                           "context_lens",
                           tables.starts.size(), num_seqs + 1);
  }
  for (size_t s = 0; s <= num_seqs; ++s) {
    const int64_t floor = s == 0 ? 0 : tables.starts[s - 1];
    if (tables.starts[s] < floor || tables.starts[s] > static_cast<int64_t>(tables.ids.size())) {
      return InvalidArgument("block_tables.starts[{}] is {}, must be from {} to the {} ids", s,
                             tables.starts[s], floor, tables.ids.size());
    }
  }
  return absl::OkStatus();
}

// The blocks that the rows of one sequence see must exist; no other entry of its table is read.
absl::Status CheckBlockTable(const AttentionArgs& a, size_t s, int32_t q_len) {
  const std::span<const int32_t> table = a.block_tables.Of(s);
  const int64_t block_tokens = a.pool.block_tokens;
  const int64_t context = a.context_lens[s];
  const int64_t capacity = static_cast<int64_t>(table.size()) * block_tokens;
  if (context > capacity) {
    return InvalidArgument("context_lens[{}] is {}, must be at most the {} of block_tables", s,
                           context, capacity);
  }
  if (q_len == 0) return absl::OkStatus();
  const int64_t first_seen =
      a.window > 0 ? std::max<int64_t>(context - q_len + 1 - a.window, 0) : 0;
  for (int64_t i = first_seen / block_tokens; i * block_tokens < context; ++i) {
    const int32_t block = table[static_cast<size_t>(i)];
    if (block < 0 || block >= a.pool.num_blocks) {
      return InvalidArgument("block_tables[{}][{}] is {}, must be in [0, {})", s, i, block,
                             a.pool.num_blocks);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSequences(const AttentionArgs& a, QueryRows query_rows) {
  const size_t num_seqs = a.context_lens.size();
  const bool decode = query_rows == QueryRows::kOneEach;
  if (a.query_starts.size() != num_seqs + 1) {
    return InvalidArgument("query_starts has {} entries, must be {}, one more than context_lens",
                           a.query_starts.size(), num_seqs + 1);
  }
  if (a.query_starts.front() != 0 || a.query_starts.back() != a.q.shape[0]) {
    return InvalidArgument("query_starts runs from {} to {}, must run from 0 to the {} rows of q",
                           a.query_starts.front(), a.query_starts.back(), a.q.shape[0]);
  }
  RETURN_IF_ERROR(CheckStarts(a.block_tables, num_seqs));
  for (size_t s = 0; s < num_seqs; ++s) {
    const int32_t q_len = a.query_starts[s + 1] - a.query_starts[s];
    if (q_len < 0 || (decode && q_len != 1)) {
      return InvalidArgument("query_starts gives sequence {} {} rows, must be {}", s, q_len,
                             decode ? "1" : "0 or more");
    }
    const bool filler = decode && a.context_lens[s] == 0;
    if (a.context_lens[s] < q_len && !filler) {
      return InvalidArgument("context_lens[{}] is {}, must be at least its {} query rows", s,
                             a.context_lens[s], q_len);
    }
    RETURN_IF_ERROR(CheckBlockTable(a, s, filler ? 0 : q_len));
  }
  return absl::OkStatus();
}

int64_t LongestContext(const AttentionArgs& a) {
  return a.context_lens.empty() ? 0 : *std::max_element(a.context_lens.begin(), a.context_lens.end());
}

// What attention may report beside its result.
absl::Status CheckReports(const AttentionArgs& a, QueryRows query_rows) {
  if (a.lse.present()) {
    RETURN_IF_ERROR(CheckTensor("lse", a.lse, DType::kF32, {a.q.shape[0], a.q.shape[1]}));
  }
  if (!a.block_mass.present()) return absl::OkStatus();
  if (query_rows != QueryRows::kOneEach) {
    return InvalidArgument("block_mass is given to prefill, which does not report it");
  }
  RETURN_IF_ERROR(CheckTensor("block_mass", a.block_mass, DType::kF32,
                              {std::ssize(a.context_lens.host()), a.pool.num_kv_heads, kAny}));
  if (a.block_mass.shape[2] * a.pool.block_tokens >= LongestContext(a)) return absl::OkStatus();
  return InvalidArgument("block_mass has room for {} blocks, must hold a context of {}",
                         a.block_mass.shape[2], LongestContext(a));
}

absl::Status CheckRange(std::string_view name, size_t row, float value, std::string_view range,
                        bool inside) {
  if (inside) return absl::OkStatus();
  return InvalidArgument("rows[{}].{} is {}, must be {}", row, name, value, range);
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
  if (!r.HasPenalties()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckIds(fmt::format("rows[{}].prompt_ids", row), r.prompt_ids, vocab));
  return CheckIds(fmt::format("rows[{}].output_ids", row), r.output_ids, vocab);
}

}  // namespace

absl::Status Check(const PackedMatrix& dst, std::span<const TensorView> sources) {
  RETURN_IF_ERROR(CheckPacked("dst", dst));
  int64_t rows = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    RETURN_IF_ERROR(
        CheckTensor(fmt::format("sources[{}]", i), sources[i], dst.dtype, {kAny, dst.k}));
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

absl::Status Check(const RmsNormArgs& a, const Ops& ops) {
  RETURN_IF_ERROR(CheckTensor("x", a.x, DType::kF32, {kAny, kAny}));
  if (a.x.shape[1] == 0) return InvalidArgument("x has rows of no elements");
  RETURN_IF_ERROR(CheckTensor("weight", a.weight, DType::kF32, {a.x.shape[1]}));
  RETURN_IF_ERROR(CheckActivation("out", a.out, ops, {a.x.shape[0], a.x.shape[1]}));
  if (!(a.eps >= 0) || std::isinf(a.eps)) {
    return InvalidArgument("eps is {}, must be finite and not negative", a.eps);
  }
  const bool in_place = a.out.data == a.x.data && a.out.row_stride == a.x.row_stride &&
                        a.out.dtype == a.x.dtype;
  if (!in_place && !Disjoint(a.x, a.out)) {
    return InvalidArgument("out overlaps x: must be the same rows or none of them");
  }
  return absl::OkStatus();
}

absl::Status Check(const RopeArgs& a, const Ops& ops) {
  RETURN_IF_ERROR(CheckActivation("q", a.q, ops, {kAny, kAny, kAny}));
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

absl::Status Check(const GemmArgs& a, const Ops& ops) {
  RETURN_IF_ERROR(CheckPacked("weight", a.weight));
  RETURN_IF_ERROR(CheckActivation("x", a.x, ops, {kAny, a.weight.k}));
  if (a.x.dtype != DType::kF32 && a.x.dtype != a.weight.dtype) {
    return InvalidArgument("x is {}, must be f32 or as the weight, {}", Name(a.x.dtype),
                           Name(a.weight.dtype));
  }
  const bool f32_out = a.output == GemmOutput::kAccumulate || a.out.dtype == DType::kF32;
  RETURN_IF_ERROR(CheckTensor("out", a.out, f32_out ? DType::kF32 : a.x.dtype,
                              {a.x.shape[0], a.weight.n}));
  if (a.bias.present()) {
    RETURN_IF_ERROR(CheckTensor("bias", a.bias, DType::kF32, {a.weight.n}));
  }
  if (!Disjoint(a.x, a.out)) return InvalidArgument("out overlaps x: must be apart");
  return absl::OkStatus();
}

absl::Status Check(const SiluMulArgs& a, const Ops& ops) {
  RETURN_IF_ERROR(CheckActivation("out", a.out, ops, {kAny, kAny}));
  RETURN_IF_ERROR(
      CheckTensor("gate_up", a.gate_up, a.out.dtype, {a.out.shape[0], 2 * a.out.shape[1]}));
  if (!Disjoint(a.gate_up, a.out)) return InvalidArgument("out overlaps gate_up: must be apart");
  return absl::OkStatus();
}

absl::Status Check(const StoreKvArgs& a, const Ops& ops) {
  RETURN_IF_ERROR(CheckPool(a.pool));
  RETURN_IF_ERROR(CheckIndex("layer", a.layer, a.pool.num_layers));
  const auto num_tokens = static_cast<int64_t>(a.slots.size());
  for (const auto& [name, tensor] : {std::pair("k", &a.k), {"v", &a.v}}) {
    RETURN_IF_ERROR(
        CheckActivation(name, *tensor, ops, {num_tokens, a.pool.num_kv_heads, a.pool.head_dim}));
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

absl::Status Check(const AttentionArgs& a, const Ops& ops, QueryRows query_rows) {
  RETURN_IF_ERROR(CheckPool(a.pool));
  RETURN_IF_ERROR(CheckIndex("layer", a.layer, a.pool.num_layers));
  RETURN_IF_ERROR(CheckActivation("q", a.q, ops, {kAny, kAny, a.pool.head_dim}));
  const int64_t num_heads = a.q.shape[1];
  if (num_heads == 0 || num_heads % a.pool.num_kv_heads != 0) {
    return InvalidArgument("q has {} heads, must be a multiple of the {} KV heads", num_heads,
                           a.pool.num_kv_heads);
  }
  RETURN_IF_ERROR(
      CheckTensor("out", a.out, a.q.dtype, {a.q.shape[0], num_heads, a.pool.head_dim}));
  if (!Disjoint(a.q, a.out)) return InvalidArgument("out overlaps q: must be apart");
  if (!std::isfinite(a.scale)) return InvalidArgument("scale is {}, must be finite", a.scale);
  if (a.window < 0) return InvalidArgument("window is {}, must be 0 or more", a.window);
  if (!(a.softcap >= 0) || std::isinf(a.softcap)) {
    return InvalidArgument("softcap is {}, must be finite and not negative", a.softcap);
  }
  RETURN_IF_ERROR(CheckSequences(a, query_rows));
  return CheckReports(a, query_rows);
}

absl::Status Check(const ColumnMassArgs& a, const Ops& ops) {
  constexpr int32_t kMaxRows = 64;
  RETURN_IF_ERROR(Check(a.attention, ops, QueryRows::kAnyNumber));
  if (!a.attention.lse.present()) return InvalidArgument("lse has no data");
  if (a.last_rows < 1 || a.last_rows > kMaxRows) {
    return InvalidArgument("last_rows is {}, must be from 1 to {}", a.last_rows, kMaxRows);
  }
  RETURN_IF_ERROR(
      CheckTensor("out", a.out, DType::kF32,
                  {std::ssize(a.attention.context_lens.host()), a.attention.pool.num_kv_heads,
                   kAny}));
  if (a.out.shape[2] >= LongestContext(a.attention)) return absl::OkStatus();
  return InvalidArgument("out has room for {} tokens, must hold a context of {}", a.out.shape[2],
                         LongestContext(a.attention));
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
