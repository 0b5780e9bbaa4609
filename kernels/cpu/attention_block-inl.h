// Attention of one block of query rows. Included once per target (Highway's foreach_target).
#if defined(TANDEM_KERNELS_CPU_ATTENTION_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_CPU_ATTENTION_BLOCK_INL_H_
#undef TANDEM_KERNELS_CPU_ATTENTION_BLOCK_INL_H_
#else
#define TANDEM_KERNELS_CPU_ATTENTION_BLOCK_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <limits>

#include "kernels/cpu/attention_tile-inl.h"

// The context of a query row is cut into chunks by absolute position. Each chunk gives a partial
// result (the row's own maximum there, 16 partial sums of exponentials, the weighted sum of V);
// partial results are merged in rising order. Prefill does so one chunk after another with many
// rows at a time, decode may compute the chunks on several threads: the arithmetic of a row is the
// same. A row never adds a key that it does not see, not even with weight 0, since 0 * NaN is NaN.

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu {
namespace HWY_NAMESPACE {

// Tokens of V that are read at a time, all dimensions of them before the next.
inline constexpr size_t kRunTokens = 8;

// The half-open range of keys of a chunk that one row sees.
struct KeyRange {
  size_t begin;
  size_t end;
};

enum class Part : uint8_t { kKeys = 0, kValues = 1 };

// A row's partial result: [padded head_dim] weighted V, [16] sums, [1] maximum.
struct Record {
  float* data;
  size_t padded_dim;

  float* output() const { return data; }
  float* sums() const { return data + padded_dim; }
  float& max() const { return data[padded_dim + kSumLanes]; }
};

// One block of query rows on one thread.
class BlockAttention {
 public:
  BlockAttention(const AttentionArgs& args, const RowBlock& block, float* scratch)
      : args_(args),
        block_(block),
        shape_(args),
        table_(args.block_tables.Of(static_cast<size_t>(block.seq)).data()),
        num_rows_(static_cast<size_t>(block.end - block.begin)) {
    for (size_t row = 0; row < num_rows_; ++row) {
      const int64_t query = (block.begin + static_cast<int64_t>(row)) / shape_.group;
      seen_[row] = Visible(args, block.seq, query);
    }
    queries_ = scratch;
    keys_ = queries_ + kMaxBlockRows * shape_.padded_dim;
    values_ = keys_ + kPanel * shape_.padded_dim;
    scores_ = values_ + kValueStep * shape_.padded_dim;
    partials_ = scores_ + kMaxBlockRows * kChunkTokens;
    totals_ = partials_ + kMaxBlockRows * shape_.record;
  }

  // The whole block: chunk after chunk, then the rows of `out`.
  void Run() {
    LoadQueries();
    ClearTotals();
    for (int64_t chunk = block_.first_chunk; chunk < block_.end_chunk; ++chunk) {
      ComputeChunk(chunk, partials_);
      MergeChunk(partials_);
    }
    StoreOutput();
  }

  // The chunks [begin, end) of the block into `partials`, [chunk][row] records.
  void RunChunks(int64_t begin, int64_t end, float* partials) {
    LoadQueries();
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      ComputeChunk(chunk, partials + (chunk - block_.first_chunk) * num_rows_ * shape_.record);
    }
  }

  // What Run does with the partial results of RunChunks.
  void Merge(float* partials) {
    ClearTotals();
    for (int64_t chunk = block_.first_chunk; chunk < block_.end_chunk; ++chunk) {
      SetRanges(chunk);
      MergeChunk(partials + (chunk - block_.first_chunk) * num_rows_ * shape_.record);
    }
    StoreOutput();
  }

 private:
  Record RecordOf(float* records, size_t row) const {
    return {records + row * shape_.record, shape_.padded_dim};
  }

  // The row's head of q or of out.
  float* HeadOf(const TensorView& tensor, size_t row) const {
    const int64_t flat = block_.begin + static_cast<int64_t>(row);
    const int64_t token = args_.query_starts[block_.seq] + flat / shape_.group;
    const int64_t head = block_.kv_head * shape_.group + flat % shape_.group;
    return tensor.Row<float>(token) + head * shape_.head_dim;
  }

  // Queries carry the scale and log2(e), so that a score is an exponent of 2.
  void LoadQueries() {
    const hn::CappedTag<float, 8> d;
    const auto scale = hn::Set(d, args_.scale * 0x1.715476p+0f);
    for (size_t row = 0; row < num_rows_; ++row) {
      const float* from = HeadOf(args_.q, row);
      float* to = queries_ + row * shape_.head_dim;
      for (size_t i = 0; i < shape_.head_dim; i += hn::Lanes(d)) {
        hn::StoreU(hn::Mul(hn::LoadU(d, from + i), scale), d, to + i);
      }
    }
  }

  // Rows rise in position, so begin and end rise with the row.
  void SetRanges(int64_t chunk) {
    const int64_t start = chunk * kChunkTokens;
    for (size_t row = 0; row < num_rows_; ++row) {
      const int64_t begin = std::clamp<int64_t>(seen_[row].begin - start, 0, kChunkTokens);
      const int64_t end = std::clamp<int64_t>(seen_[row].end - start, begin, kChunkTokens);
      ranges_[row] = {static_cast<size_t>(begin), static_cast<size_t>(end)};
    }
  }

  void ComputeChunk(int64_t chunk, float* records) {
    SetRanges(chunk);
    switch (args_.pool.dtype) {
      case DType::kBF16:
        return ComputeChunkOf<hwy::bfloat16_t>(chunk, records);
      case DType::kF16:
        return ComputeChunkOf<hwy::float16_t>(chunk, records);
      default:
        return ComputeChunkOf<float>(chunk, records);
    }
  }

  // Few rows read K and V straight from the pool. For many, a panel of K and a step of V are
  // widened once.
  template <class T>
  void ComputeChunkOf(int64_t chunk, float* records) {
    const int64_t start = chunk * kChunkTokens;
    const KeyRange all = {ranges_[0].begin, ranges_[num_rows_ - 1].end};
    const bool direct = num_rows_ <= kTileRows && shape_.head_dim % kPanel == 0;
    for (size_t key = all.begin / kPanel * kPanel; key < all.end; key += kPanel) {
      for (size_t group = key; group < std::min(all.end, key + kPanel); group += kGroup) {
        const T* eights[kGroup / 8];
        const T* next[kGroup / 8];
        FindEights(Part::kKeys, start, group, all, eights);
        FindNext(start, group, all, next);
        if (direct) {
          ScoreGroup(eights, next, group);
        } else {
          WidenKeys(eights, next, shape_.head_dim, keys_ + group % kPanel);
        }
      }
      if (!direct) ComputeScores(key);
    }
    for (size_t row = 0; row < num_rows_; ++row) {
      Softmax(row, RecordOf(records, row));
      std::fill_n(RecordOf(records, row).output(), shape_.padded_dim, 0.0f);
    }
    for (size_t key = all.begin / kValueStep * kValueStep; key < all.end; key += kValueStep) {
      const KeyRange keys = {std::max(all.begin, key), std::min(all.end, key + kValueStep)};
      if (direct) {
        AddValues(0, num_rows_, keys, [&](size_t row, size_t rows, KeyRange shared) HWY_ATTR {
          AddStored<T>(row, rows, start, shared, records);
        });
        continue;
      }
      WidenValueStep<T>(start, keys);
      for (size_t dim = 0; dim < shape_.padded_dim; dim += kPanel) {
        for (size_t row = 0; row < num_rows_; row += kTileRows) {
          const size_t rows = std::min(kTileRows, num_rows_ - row);
          AddValues(row, rows, keys, [&](size_t first, size_t count, KeyRange shared) HWY_ATTR {
            AddWidened(first, count, shared, dim, records);
          });
        }
      }
    }
  }

  // K or V of a token; the tokens of a group of eight follow one another.
  template <class T>
  const T* At(Part part, int64_t token) const {
    const KvPoolView& pool = args_.pool;
    const int64_t offset = token & (pool.block_tokens - 1);
    const auto* extent =
        reinterpret_cast<const T*>(pool.Extent(args_.layer, table_[token >> shape_.block_shift]));
    const int64_t head = static_cast<int64_t>(part) * pool.num_kv_heads + block_.kv_head;
    return extent + (head * pool.block_tokens + offset) * pool.head_dim;
  }

  // Where a group of the chunk at `start` lies. Eight tokens that no row sees may have no block at
  // all, so others stand in for them.
  template <class T>
  void FindEights(Part part, int64_t start, size_t group, KeyRange seen, const T** eights) const {
    const size_t stand_in = std::max(seen.begin, group) / 8 * 8;
    for (size_t i = 0; i < kGroup / 8; ++i) {
      const size_t key = group + 8 * i;
      const bool any_seen = key + 8 > seen.begin && key < seen.end;
      eights[i] = At<T>(part, start + static_cast<int64_t>(any_seen ? key : stand_in));
    }
  }

  // What is read after a group of keys: the next one, in the end the first values.
  template <class T>
  void FindNext(int64_t start, size_t group, KeyRange seen, const T** next) const {
    if (group + kGroup < seen.end) {
      FindEights(Part::kKeys, start, group + kGroup, seen, next);
    } else {
      FindEights(Part::kValues, start, seen.begin / kGroup * kGroup, seen, next);
    }
  }

  template <class T>
  void ScoreGroup(const T* const* eights, const T* const* next, size_t group) {
    const QueryTile tile = {.queries = queries_,
                            .head_dim = shape_.head_dim,
                            .scores = scores_ + group,
                            .scores_stride = kChunkTokens};
    switch (std::bit_ceil(num_rows_)) {  // scratch has room for rows that nobody asked for
      case 1:
        return ScoreKeys<1>(eights, next, tile);
      case 2:
        return ScoreKeys<2>(eights, next, tile);
      case 4:
        return ScoreKeys<4>(eights, next, tile);
      case 8:
        return ScoreKeys<8>(eights, next, tile);
    }
  }

  template <class T>
  void WidenValueStep(int64_t start, KeyRange keys) {
    ForRuns(start, keys, [&](size_t key, size_t run) HWY_ATTR {
      WidenValues<T>(At<T>(Part::kValues, start + static_cast<int64_t>(key)), run, shape_.head_dim,
                     kValueStep * kPanel, values_ + key % kValueStep * kPanel);
    });
  }

  // Calls body(key, n) for short pieces of `keys` that lie in one block each.
  template <class Body>
  void ForRuns(int64_t start, KeyRange keys, const Body& body) const {
    const auto block_tokens = static_cast<size_t>(args_.pool.block_tokens);
    for (size_t key = keys.begin; key < keys.end;) {
      const size_t token = static_cast<size_t>(start) + key;
      const size_t run =
          std::min({block_tokens - token % block_tokens, keys.end - key, kRunTokens});
      body(key, run);
      key += run;
    }
  }

  void ComputeScores(size_t key) {
    for (size_t row = 0; row < num_rows_; row += kTileRows) {
      const size_t rows = std::min(kTileRows, num_rows_ - row);
      if (ranges_[row].begin >= key + kPanel || ranges_[row + rows - 1].end <= key) continue;
      Multiply<Ahead::kNothing, float>(rows, {.a = queries_ + row * shape_.head_dim,
                                              .a_stride = shape_.head_dim,
                                              .b = keys_,
                                              .b_stride = kPanel,
                                              .n = shape_.head_dim,
                                              .c = scores_ + row * kChunkTokens + key,
                                              .c_stride = kChunkTokens,
                                              .start = Start::kZero});
    }
  }

  // Replaces the scores of a row by exp2(score - maximum).
  void Softmax(size_t row, Record record) {
    const KeyRange range = ranges_[row];
    if (range.begin == range.end) return;
    const F32Tag d;
    float* scores = scores_ + row * kChunkTokens;
    const size_t begin = range.begin / kSumLanes * kSumLanes;
    const size_t end = (range.end + kSumLanes - 1) / kSumLanes * kSumLanes;
    constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
    std::fill(scores + begin, scores + range.begin, kMinusInfinity);
    std::fill(scores + range.end, scores + end, kMinusInfinity);

    F32 highest = hn::Set(d, kMinusInfinity);
    for (size_t i = begin; i < end; i += kLanes)
      highest = hn::Max(highest, hn::Load(d, scores + i));
    highest = hn::MaxOfLanes(d, highest);
    F32 sums[kSumVectors];
    for (size_t v = 0; v < kSumVectors; ++v) sums[v] = hn::Zero(d);
    for (size_t i = begin; i < end; i += kSumLanes) {
      for (size_t v = 0; v < kSumVectors; ++v) {
        float* at = scores + i + v * kLanes;
        const F32 weight = Exp2(hn::Sub(hn::Load(d, at), highest));
        hn::Store(weight, d, at);
        sums[v] = hn::Add(sums[v], weight);
      }
    }
    for (size_t v = 0; v < kSumVectors; ++v) hn::StoreU(sums[v], d, record.sums() + v * kLanes);
    record.max() = hn::GetLane(highest);
  }

  // Calls add(first, rows, keys): the keys that all rows of the tile see are added to all of them
  // at once, the few before and after row by row.
  template <class Add>
  void AddValues(size_t first, size_t rows, KeyRange step, const Add& add) {
    const auto range_of = [&](size_t row) {
      return KeyRange{std::max(ranges_[row].begin, step.begin),
                      std::min(ranges_[row].end, step.end)};
    };
    const auto add_some = [&](size_t row, size_t count, KeyRange keys) {
      if (keys.begin < keys.end) add(row, count, keys);
    };
    const size_t last = first + rows - 1;
    const size_t begin = range_of(last).begin;
    const size_t end = range_of(first).end;
    for (size_t row = first; row < last; ++row) {
      const KeyRange range = range_of(row);
      add_some(row, 1, {range.begin, std::min(begin, range.end)});
    }
    add_some(first, rows, {begin, end});
    for (size_t row = first + 1; row <= last; ++row) {
      add_some(row, 1, {std::max(begin, end), range_of(row).end});
    }
  }

  void AddWidened(size_t row, size_t rows, KeyRange keys, size_t dim, float* records) {
    Multiply<Ahead::kNothing, float>(
        rows, {.a = scores_ + row * kChunkTokens + keys.begin,
               .a_stride = kChunkTokens,
               .b = values_ + dim * kValueStep + keys.begin % kValueStep * kPanel,
               .b_stride = kPanel,
               .n = keys.end - keys.begin,
               .c = RecordOf(records, row).output() + dim,
               .c_stride = shape_.record,
               .start = Start::kLoad});
  }

  template <class T>
  void AddStored(size_t row, size_t rows, int64_t start, KeyRange keys, float* records) {
    ForRuns(start, keys, [&](size_t key, size_t run) HWY_ATTR {
      const int64_t token = start + static_cast<int64_t>(key);
      const T* values = At<T>(Part::kValues, token);
      const T* next = NextValues<T>(token);
      for (size_t dim = 0; dim < shape_.head_dim; dim += kPanel) {
        Multiply<Ahead::kNext, T>(rows, {.a = scores_ + row * kChunkTokens + key,
                                         .a_stride = kChunkTokens,
                                         .b = values + dim,
                                         .b_stride = shape_.head_dim,
                                         .n = run,
                                         .c = RecordOf(records, row).output() + dim,
                                         .c_stride = shape_.record,
                                         .start = Start::kLoad,
                                         .next = next + dim});
      }
    });
  }

  // What is read a panel after the values of `token`: in the end the keys of the next chunk.
  template <class T>
  const T* NextValues(int64_t token) const {
    const int64_t next = token + kPanel;
    if (next >= seen_[num_rows_ - 1].end) return At<T>(Part::kValues, token);
    return At<T>(next % kChunkTokens < int64_t{kPanel} ? Part::kKeys : Part::kValues, next);
  }

  void ClearTotals() {
    std::fill(totals_, totals_ + num_rows_ * shape_.record, 0.0f);
    for (size_t row = 0; row < num_rows_; ++row) {
      RecordOf(totals_, row).max() = -std::numeric_limits<float>::infinity();
    }
  }

  void MergeChunk(float* partials) {
    for (size_t row = 0; row < num_rows_; ++row) {
      if (ranges_[row].begin < ranges_[row].end) {
        MergeRecord(RecordOf(partials, row), RecordOf(totals_, row));
      }
    }
  }

  void MergeRecord(Record part, Record total) {
    const F32Tag d;
    const float max = std::max(part.max(), total.max());
    const F32 part_scale = Exp2(hn::Set(d, part.max() - max));
    const F32 total_scale = Exp2(hn::Set(d, total.max() - max));
    total.max() = max;
    for (size_t i = 0; i < shape_.padded_dim + kSumLanes; i += kLanes) {
      const F32 scaled = hn::Mul(hn::LoadU(d, total.data + i), total_scale);
      hn::StoreU(hn::MulAdd(hn::LoadU(d, part.data + i), part_scale, scaled), d, total.data + i);
    }
  }

  void StoreOutput() {
    const hn::CappedTag<float, 8> d;  // head_dim is a multiple of 8
    for (size_t row = 0; row < num_rows_; ++row) {
      const Record total = RecordOf(totals_, row);
      const auto scale = hn::Set(d, 1.0f / FoldSum(total.sums()));
      float* out = HeadOf(args_.out, row);
      for (size_t i = 0; i < shape_.head_dim; i += hn::Lanes(d)) {
        hn::StoreU(hn::Mul(hn::LoadU(d, total.output() + i), scale), d, out + i);
      }
    }
  }

  const AttentionArgs& args_;
  const RowBlock& block_;
  const AttentionShape shape_;
  const int32_t* table_;  // of the block's sequence
  const size_t num_rows_;
  VisibleKeys seen_[kMaxBlockRows];
  KeyRange ranges_[kMaxBlockRows];  // of the chunk at hand
  float* queries_;                  // [row][head_dim], scaled
  float* keys_;                     // [head_dim][32], one panel
  float* values_;                   // of one step
  float* scores_;                   // [row][key]
  float* partials_;                 // [row] records of one chunk
  float* totals_;                   // [row] records merged so far
};

}  // namespace HWY_NAMESPACE
}  // namespace tandem::cpu
HWY_AFTER_NAMESPACE();

#endif  // TANDEM_KERNELS_CPU_ATTENTION_BLOCK_INL_H_
