#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "kernels/validate.h"
#include "kernels/validate_checks.h"

namespace tandem::validate {
namespace {

absl::Status CheckStarts(const BlockTables& tables, size_t num_seqs) {
  if (tables.starts.size() != num_seqs + 1) {
    return InvalidArgument(
        "block_tables.starts has {} entries, must have {}, one more than "
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
  return a.context_lens.empty() ? 0
                                : *std::max_element(a.context_lens.begin(), a.context_lens.end());
}

// Checks lse and block_mass, which attention may report beside its output.
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

}  // namespace

absl::Status Check(const AttentionArgs& a, ActivationTypeOf activation_type, QueryRows query_rows) {
  RETURN_IF_ERROR(CheckPool(a.pool));
  RETURN_IF_ERROR(CheckIndex("layer", a.layer, a.pool.num_layers));
  RETURN_IF_ERROR(CheckActivation("q", a.q, activation_type, {kAny, kAny, a.pool.head_dim}));
  const int64_t num_heads = a.q.shape[1];
  if (num_heads == 0 || num_heads % a.pool.num_kv_heads != 0) {
    return InvalidArgument("q has {} heads, must be a multiple of the {} KV heads", num_heads,
                           a.pool.num_kv_heads);
  }
  RETURN_IF_ERROR(CheckTensor("out", a.out, a.q.dtype, {a.q.shape[0], num_heads, a.pool.head_dim}));
  if (!Disjoint(a.q, a.out)) return InvalidArgument("out overlaps q: must be apart");
  if (!std::isfinite(a.scale)) return InvalidArgument("scale is {}, must be finite", a.scale);
  if (a.window < 0) return InvalidArgument("window is {}, must be 0 or more", a.window);
  if (!(a.softcap >= 0) || std::isinf(a.softcap)) {
    return InvalidArgument("softcap is {}, must be finite and not negative", a.softcap);
  }
  RETURN_IF_ERROR(CheckSequences(a, query_rows));
  return CheckReports(a, query_rows);
}

absl::Status Check(const ColumnMassArgs& a, ActivationTypeOf activation_type) {
  constexpr int32_t kMaxRows = 1024;
  RETURN_IF_ERROR(Check(a.attention, activation_type, QueryRows::kAnyNumber));
  if (!a.attention.lse.present()) return InvalidArgument("lse has no data");
  if (a.last_rows < 1 || a.last_rows > kMaxRows) {
    return InvalidArgument("last_rows is {}, must be from 1 to {}", a.last_rows, kMaxRows);
  }
  if (a.rows_behind < 0) {
    return InvalidArgument("rows_behind is {}, must be 0 or more", a.rows_behind);
  }
  if (!(a.decay > 0 && a.decay <= 1)) {
    return InvalidArgument("decay is {}, must be in (0, 1]", a.decay);
  }
  RETURN_IF_ERROR(CheckTensor(
      "out", a.out, DType::kF32,
      {std::ssize(a.attention.context_lens.host()), a.attention.pool.num_kv_heads, kAny}));
  if (a.out.shape[2] >= LongestContext(a.attention)) return absl::OkStatus();
  return InvalidArgument("out has room for {} tokens, must hold a context of {}", a.out.shape[2],
                         LongestContext(a.attention));
}

}  // namespace tandem::validate
