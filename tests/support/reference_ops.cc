#include "tests/support/reference_ops.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "tests/support/reference_kv.h"

namespace tandem::reference {
namespace {

double At(const TensorView& tensor, int64_t row, int64_t index) {
  return Load(tensor.dtype, tensor.data, row * tensor.row_stride + index);
}

double MeanSquare(const TensorView& tensor, int64_t row, int64_t begin, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::pow(At(tensor, row, begin + i), 2);
  return sum / static_cast<double>(n);
}

// K and V of a sequence as attention sees them: dense and in float64, because every query row of
// the sequence reads them again. Tokens before `begin` are seen by no row, and are not read.
struct SequenceKv {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t head_dim = 0;
  std::vector<double> keys;    // [kv_head][token from begin][dim]
  std::vector<double> values;  // likewise

  size_t RowOf(int64_t kv_head, int64_t token) const {
    return static_cast<size_t>((kv_head * (end - begin) + token - begin) * head_dim);
  }
  const double* Key(int64_t kv_head, int64_t token) const {
    return keys.data() + RowOf(kv_head, token);
  }
  const double* Value(int64_t kv_head, int64_t token) const {
    return values.data() + RowOf(kv_head, token);
  }
};

// A row of extent `block`; `token` counts from the beginning of the sequence.
void ReadRow(const AttentionArgs& a, KvSide side, int32_t block, int32_t kv_head, int64_t token,
             double* out) {
  const KvPoolView& pool = a.pool;
  const int64_t at = pool.RowAt(side, kv_head, token % pool.block_tokens);
  std::ranges::copy(LoadRow(pool, side, pool.Extent(a.layer, block) + at), out);
}

// What the query rows from position `first_position` on see.
SequenceKv ReadKv(const AttentionArgs& a, int64_t seq, int64_t first_position) {
  const KvPoolView& pool = a.pool;
  SequenceKv kv;
  kv.begin = a.window > 0 ? std::max<int64_t>(0, first_position + 1 - a.window) : 0;
  kv.end = std::max<int64_t>(kv.begin, a.context_lens[static_cast<size_t>(seq)]);
  kv.head_dim = pool.head_dim;
  const auto size = kv.RowOf(pool.num_kv_heads, kv.begin);
  kv.keys.resize(size);
  kv.values.resize(size);
  const auto table = a.block_tables.Of(static_cast<size_t>(seq));
  for (int64_t token = kv.begin; token < kv.end; ++token) {
    const int32_t block = table[static_cast<size_t>(token / pool.block_tokens)];
    for (int32_t head = 0; head < pool.num_kv_heads; ++head) {
      const size_t row = kv.RowOf(head, token);
      ReadRow(a, KvSide::kKeys, block, head, token, kv.keys.data() + row);
      ReadRow(a, KvSide::kValues, block, head, token, kv.values.data() + row);
    }
  }
  return kv;
}

struct AttentionRow {
  int64_t seq;
  int64_t token;  // row of q
  int64_t head;
  int64_t position;  // -1: of a sequence without context
};

// The softmax weights of the keys [begin, row.position], and ln(sum(e^logit)).
struct RowWeights {
  int64_t begin = 0;
  std::vector<double> weights;
  double lse = -std::numeric_limits<double>::infinity();
};

int64_t KvHead(const AttentionArgs& a, int64_t head) {
  return head / (a.q.shape[1] / a.pool.num_kv_heads);
}

RowWeights Weigh(const AttentionArgs& a, const SequenceKv& kv, const AttentionRow& row) {
  const int64_t dim = a.pool.head_dim;
  RowWeights result;
  if (row.position < 0) return result;
  std::vector<double> query;
  for (int64_t i = 0; i < dim; ++i) query.push_back(At(a.q, row.token, row.head * dim + i));
  result.begin = a.window > 0 ? std::max<int64_t>(0, row.position + 1 - a.window) : 0;
  for (int64_t key = result.begin; key <= row.position; ++key) {
    const double* const k = kv.Key(KvHead(a, row.head), key);
    double dot = 0;
    for (int64_t i = 0; i < dim; ++i) dot += query[static_cast<size_t>(i)] * k[i];
    const double logit = dot * a.scale;
    result.weights.push_back(a.softcap > 0 ? a.softcap * std::tanh(logit / a.softcap) : logit);
  }
  const double highest = *std::max_element(result.weights.begin(), result.weights.end());
  double total = 0;
  for (double& weight : result.weights) total += weight = std::exp(weight - highest);
  for (double& weight : result.weights) weight /= total;
  result.lse = highest + std::log(total);
  return result;
}

void AddRow(const AttentionArgs& a, const SequenceKv& kv, const AttentionRow& row,
            AttentionResult& result) {
  const int64_t dim = a.pool.head_dim;
  const int64_t kv_head = KvHead(a, row.head);
  const RowWeights seen = Weigh(a, kv, row);
  const int64_t index = row.token * a.q.shape[1] + row.head;
  result.lse[static_cast<size_t>(index)] = seen.lse;
  double* out = result.out.data() + index * dim;
  double* mass =
      result.block_mass.data() + (row.seq * a.pool.num_kv_heads + kv_head) * a.block_mass.shape[2];
  for (size_t i = 0; i < seen.weights.size(); ++i) {
    const int64_t key = seen.begin + static_cast<int64_t>(i);
    const double* const value = kv.Value(kv_head, key);
    for (int64_t d = 0; d < dim; ++d) out[d] += seen.weights[i] * value[d];
    if (!result.block_mass.empty()) mass[key / a.pool.block_tokens] += seen.weights[i];
  }
}

std::vector<double> Scores(std::span<const float> logits, const SampleRow& row) {
  std::vector<double> scores(logits.begin(), logits.end());
  for (const auto& [id, bias] : row.biases) scores[static_cast<size_t>(id)] += bias;
  std::set<int32_t> seen(row.prompt_ids.begin(), row.prompt_ids.end());
  std::map<int32_t, int> counts;
  for (int32_t id : row.output_ids) {
    seen.insert(id);
    ++counts[id];
  }
  for (int32_t id : seen) {
    double& score = scores[static_cast<size_t>(id)];
    score = score > 0 ? score / row.repetition_penalty : score * row.repetition_penalty;
  }
  for (const auto& [id, count] : counts) {
    scores[static_cast<size_t>(id)] -= count * row.frequency_penalty + row.presence_penalty;
  }
  const std::set<int32_t> allowed(row.allowed_ids.begin(), row.allowed_ids.end());
  const std::set<int32_t> excluded(row.excluded_ids.begin(), row.excluded_ids.end());
  for (size_t i = 0; i < scores.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    if (excluded.contains(id) || !(allowed.empty() || allowed.contains(id))) {
      scores[i] = -std::numeric_limits<double>::infinity();
    }
  }
  return scores;
}

}  // namespace

std::vector<double> Embedding(const EmbeddingArgs& a, const TensorView& table) {
  std::vector<double> out;
  for (int32_t id : a.token_ids) {
    for (int64_t i = 0; i < a.table.k; ++i) out.push_back(At(table, id, i));
  }
  return out;
}

std::vector<double> Gemm(const GemmArgs& a, const TensorView& weight) {
  std::vector<double> out;
  for (int64_t t = 0; t < a.x.rows(); ++t) {
    for (int64_t n = 0; n < a.weight.n; ++n) {
      double sum = a.output == GemmOutput::kAccumulate ? At(a.out, t, n) : 0;
      if (a.bias.present()) sum += At(a.bias, 0, n);
      for (int64_t k = 0; k < a.weight.k; ++k) sum += At(a.x, t, k) * At(weight, n, k);
      out.push_back(sum);
    }
  }
  return out;
}

std::vector<double> RmsNorm(const RmsNormArgs& a) {
  std::vector<double> out;
  const int64_t n = a.x.shape[1];
  for (int64_t row = 0; row < a.x.rows(); ++row) {
    const double norm = std::sqrt(MeanSquare(a.x, row, 0, n) + a.eps);
    for (int64_t i = 0; i < n; ++i) out.push_back(At(a.x, row, i) / norm * At(a.weight, 0, i));
  }
  return out;
}

std::vector<double> Rope(const RopeArgs& a, const TensorView& heads, const TensorView& norm) {
  std::vector<double> out;
  const int64_t dim = heads.shape[2];
  const int64_t half = dim / 2;
  std::vector<double> x(static_cast<size_t>(dim));
  for (int64_t t = 0; t < heads.rows(); ++t) {
    const int64_t position = a.positions[static_cast<size_t>(t)];
    for (int64_t head = 0; head < heads.shape[1]; ++head) {
      const double scale =
          norm.present() ? 1 / std::sqrt(MeanSquare(heads, t, head * dim, dim) + a.norm_eps) : 1;
      for (int64_t i = 0; i < dim; ++i) {
        const double weight = norm.present() ? At(norm, 0, i) : 1;
        x[static_cast<size_t>(i)] = At(heads, t, head * dim + i) * scale * weight;
      }
      for (int64_t i = 0; i < dim; ++i) {
        const int64_t pair = i % half;
        const double partner =
            i < half ? -x[static_cast<size_t>(i + half)] : x[static_cast<size_t>(i - half)];
        out.push_back(x[static_cast<size_t>(i)] * At(a.cos, position, pair) +
                      partner * At(a.sin, position, pair));
      }
    }
  }
  return out;
}

std::vector<double> SiluMul(const SiluMulArgs& a) {
  std::vector<double> out;
  const int64_t n = a.out.shape[1];
  for (int64_t t = 0; t < a.out.rows(); ++t) {
    for (int64_t i = 0; i < n; ++i) {
      const double gate = At(a.gate_up, t, i);
      out.push_back(gate / (1 + std::exp(-gate)) * At(a.gate_up, t, n + i));
    }
  }
  return out;
}

AttentionResult Attention(const AttentionArgs& a) {
  const int64_t num_heads = a.q.shape[1];
  const auto rows = static_cast<size_t>(a.q.rows() * num_heads);
  AttentionResult result;
  result.out.resize(rows * static_cast<size_t>(a.pool.head_dim));
  result.lse.resize(rows);
  if (a.block_mass.rank == 3) {
    result.block_mass.resize(static_cast<size_t>(a.block_mass.rows() * a.block_mass.RowElements()));
  }
  for (size_t s = 0; s < a.context_lens.size(); ++s) {
    const auto seq = static_cast<int64_t>(s);
    const int64_t before = a.context_lens[s] - a.query_starts[s + 1];  // position less row of q
    const SequenceKv kv = ReadKv(a, seq, before + a.query_starts[s]);
    for (int64_t token = a.query_starts[s]; token < a.query_starts[s + 1]; ++token) {
      for (int64_t head = 0; head < num_heads; ++head) {
        AddRow(a, kv, {seq, token, head, before + token}, result);
      }
    }
  }
  return result;
}

std::vector<double> ColumnMass(const ColumnMassArgs& a) {
  const AttentionArgs& attention = a.attention;
  const int64_t max_tokens = a.out.shape[2];
  std::vector<double> out(static_cast<size_t>(a.out.rows() * a.out.RowElements()));
  for (size_t s = 0; s < attention.context_lens.size(); ++s) {
    const int64_t end = attention.query_starts[s + 1];
    const int64_t begin = std::max<int64_t>(attention.query_starts[s], end - a.last_rows);
    const auto seq = static_cast<int64_t>(s);
    const int64_t before = attention.context_lens[s] - end;
    const SequenceKv kv = ReadKv(attention, seq, before + begin);
    for (int64_t token = begin; token < end; ++token) {
      const int64_t behind = a.rows_behind + (end - 1 - token);
      const double factor = std::pow(double{a.decay}, static_cast<double>(behind / 16));
      for (int64_t head = 0; head < attention.q.shape[1]; ++head) {
        const RowWeights seen = Weigh(attention, kv, {seq, token, head, before + token});
        const int64_t row = seq * attention.pool.num_kv_heads + KvHead(attention, head);
        for (size_t i = 0; i < seen.weights.size(); ++i) {
          out[static_cast<size_t>(row * max_tokens + seen.begin) + i] += factor * seen.weights[i];
        }
      }
    }
  }
  return out;
}

std::vector<double> SampleDistribution(std::span<const float> logits, const SampleRow& row) {
  const std::vector<double> scores = Scores(logits, row);
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t x, int32_t y) {
    return scores[static_cast<size_t>(x)] > scores[static_cast<size_t>(y)];
  });
  std::vector<double> probabilities(scores.size());
  const double highest = scores[static_cast<size_t>(order[0])];
  if (row.temperature == 0) {
    probabilities[static_cast<size_t>(order[0])] = 1;
    return probabilities;
  }
  if (row.top_k > 0 && static_cast<size_t>(row.top_k) < order.size()) {
    order.resize(static_cast<size_t>(row.top_k));
  }
  double total = 0;
  for (int32_t id : order) {
    const auto i = static_cast<size_t>(id);
    total += probabilities[i] = std::exp((scores[i] - highest) / row.temperature);
  }
  double before = 0;
  double kept = 0;
  for (int32_t id : order) {
    double& weight = probabilities[static_cast<size_t>(id)];
    const bool keep = (row.top_p >= 1 || before < row.top_p * total) && weight >= row.min_p;
    before += weight;
    if (!keep) weight = 0;
    kept += weight;
  }
  for (double& p : probabilities) p /= kept;
  return probabilities;
}

std::vector<double> Logprobs(std::span<const float> logits) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (float logit : logits) total += std::exp(logit - highest);
  std::vector<double> out;
  for (float logit : logits) out.push_back(logit - highest - std::log(total));
  return out;
}

}  // namespace tandem::reference
