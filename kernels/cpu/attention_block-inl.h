// Attention of one block of query rows. Included once per target (Highway's foreach_target).
#if defined(TANDEM_KERNELS_CPU_ATTENTION_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_CPU_ATTENTION_BLOCK_INL_H_
#undef TANDEM_KERNELS_CPU_ATTENTION_BLOCK_INL_H_
#else
#define TANDEM_KERNELS_CPU_ATTENTION_BLOCK_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "kernels/cpu/attention_scores-inl.h"
#include "kernels/cpu/block_masses.h"

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

// A row's partial result: [padded head_dim] weighted V, [16] sums, [1] maximum.
struct Record {
  float* data;
  size_t padded_dim;

  float* output() const { return data; }
  float* sums() const { return data + padded_dim; }
  float& max() const { return data[padded_dim + kSumLanes]; }
};

// One block of query rows on one thread. `masses` is of the block's sequence and KV head, or
// absent.
class BlockAttention : public RowScores {
 public:
  BlockAttention(const AttentionArgs& args, KvProducts products, const RowBlock& block,
                 const BlockMasses& masses, float* scratch)
      : RowScores(args, products, block, scratch), masses_(masses) {
    values_ = scores_ + kMaxBlockRows * kChunkTokens;
    partials_ = values_ + kValueStep * shape_.padded_dim;
    totals_ = partials_ + kMaxBlockRows * shape_.record;
  }

  // Computes the whole block: chunk after chunk, then the rows of `out`.
  void Run() {
    LoadQueries();
    ClearTotals();
    for (int64_t chunk = block_.first_chunk; chunk < block_.end_chunk; ++chunk) {
      ComputeChunk(chunk, partials_);
      MergeChunk(partials_);
    }
    StoreOutput();
  }

  // Computes the chunks [begin, end) of the block into `partials`, [chunk][row] records.
  void RunChunks(int64_t begin, int64_t end, float* partials) {
    LoadQueries();
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      ComputeChunk(chunk, partials + (chunk - block_.first_chunk) * num_rows_ * shape_.record);
    }
  }

  // Merges the partial results that RunChunks wrote, and stores the rows of `out`.
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

  void ComputeChunk(int64_t chunk, float* records) {
    WithStoredType(args_.pool.dtype, products_, [&](auto stored) HWY_ATTR {
      using T = decltype(stored);
      ScoreChunk<T>(chunk);
      for (size_t row = 0; row < num_rows_; ++row) {
        Softmax(row, RecordOf(records, row));
        if (masses_.present()) StoreMasses(chunk, row, RecordOf(records, row).max());
        if (kIsPaired<T>) RoundWeights(row);
        std::fill_n(RecordOf(records, row).output(), shape_.padded_dim, 0.0f);
      }
      AddChunkValues<T>(chunk * kChunkTokens, records);
    });
  }

  template <class T>
  void AddChunkValues(int64_t start, float* records) {
    const KeyRange all = AllKeys();
    for (size_t key = all.begin / kValueStep * kValueStep; key < all.end; key += kValueStep) {
      const KeyRange keys = {std::max(all.begin, key), std::min(all.end, key + kValueStep)};
      if (direct()) {
        AddValues(0, num_rows_, keys, [&](size_t row, size_t rows, KeyRange shared) HWY_ATTR {
          AddStored(T(), row, rows, start, shared, records);
        });
        continue;
      }
      WidenValueStep(T(), start, keys);
      for (size_t dim = 0; dim < shape_.padded_dim; dim += kPanel) {
        for (size_t row = 0; row < num_rows_; row += kTileRows) {
          const size_t rows = std::min(kTileRows, num_rows_ - row);
          AddValues(row, rows, keys, [&](size_t first, size_t count, KeyRange shared) HWY_ATTR {
            AddWidened(T(), first, count, shared, dim, records);
          });
        }
      }
    }
  }

  // Puts pairs of rows of V into values_. Where a row sees one token of a pair, the other one may
  // be read, too: it lies in the same block.
  template <class Products>
  void WidenValueStep(PairedBF16<Products>, int64_t start, KeyRange keys) {
    const KeyRange pairs = {keys.begin / 2 * 2, (keys.end + 1) / 2 * 2};
    ForRuns(start, pairs, [&](size_t key, size_t run) HWY_ATTR {
      PairValues(At<hwy::bfloat16_t>(KvSide::kValues, start + static_cast<int64_t>(key)), run / 2,
                 shape_.head_dim, kValueStep * kPanel, values_ + key % kValueStep / 2 * kPanel);
    });
  }

  template <class T>
  void WidenValueStep(T, int64_t start, KeyRange keys) {
    ForRuns(start, keys, [&](size_t key, size_t run) HWY_ATTR {
      const T* values = At<T>(KvSide::kValues, start + static_cast<int64_t>(key));
      float* const out = values_ + key % kValueStep * kPanel;
      if constexpr (std::is_same_v<T, QuantisedRow>) {
        Unpack(KvSide::kValues, values, NextValues<T>(start + static_cast<int64_t>(key)), run, 0);
        WidenCodes(codes_, run, shape_.head_dim, kValueStep * kPanel, out);
      } else {
        WidenValues<T>(values, run, shape_.head_dim, kValueStep * kPanel, out);
      }
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

  // Replaces the scores of a row by exp2(score - maximum).
  void Softmax(size_t row, Record record) {
    if (ranges_[row].begin == ranges_[row].end) return;
    if (args_.softcap > 0) CapScores(row);
    MaskScores(row);
    const F32Tag d;
    const KeyRange keys = AlignedRange(row);
    float* scores = scores_ + row * kChunkTokens;
    F32 highest = hn::Set(d, kMinusInfinity);
    for (size_t i = keys.begin; i < keys.end; i += kLanes) {
      highest = hn::Max(highest, hn::Load(d, scores + i));
    }
    highest = hn::MaxOfLanes(d, highest);
    F32 sums[kSumVectors];
    for (size_t v = 0; v < kSumVectors; ++v) sums[v] = hn::Zero(d);
    for (size_t i = keys.begin; i < keys.end; i += kSumLanes) {
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

  // Makes the softmax weights of a row words of bf16, after they were used as floats.
  void RoundWeights(size_t row) {
    const KeyRange keys = AlignedRange(row);
    RoundInPlace(scores_ + row * kChunkTokens, keys.begin, keys.end);
  }

  // Stores, after Softmax, the sum of the row's weights in each KV block of the chunk.
  void StoreMasses(int64_t chunk, size_t row, float max) {
    const KeyRange range = ranges_[row];
    float* masses = masses_.OfChunk(block_.begin + static_cast<int64_t>(row), chunk);
    masses[0] = range.begin == range.end ? kMinusInfinity : max;
    const auto block_tokens = static_cast<size_t>(args_.pool.block_tokens);
    for (size_t key = 0; key < kChunkTokens; key += block_tokens) {
      const size_t begin = std::max(range.begin, key);
      const size_t end = std::min(range.end, key + block_tokens);
      const float* weights = scores_ + row * kChunkTokens + begin;
      *++masses = begin < end ? SumInOrder(weights, end - begin,
                                           [](F32 sum, F32 v) HWY_ATTR { return hn::Add(sum, v); })
                              : 0.0f;
    }
  }

  // Calls add(first, rows, keys): the keys that all rows of the tile see are added to all of them
  // at once, the few before and after row by row. A pair that a row sees by half is among the
  // latter.
  template <class Add>
  void AddValues(size_t first, size_t rows, KeyRange step, const Add& add) {
    const auto range_of = [&](size_t row) {
      return KeyRange{std::max(ranges_[row].begin, step.begin),
                      std::min(ranges_[row].end, step.end)};
    };
    const auto add_some = [&](size_t row, size_t count, KeyRange keys) {
      if (keys.begin < keys.end) add(row, count, keys);
    };
    const size_t unit = paired() ? 2 : 1;
    const size_t begin = (range_of(first + rows - 1).begin + unit - 1) / unit * unit;
    const size_t end = range_of(first).end / unit * unit;
    for (size_t row = first; row < first + rows; ++row) {
      const KeyRange range = range_of(row);
      add_some(row, 1, {range.begin, std::min(begin, range.end)});
    }
    add_some(first, rows, {begin, end});
    for (size_t row = first; row < first + rows; ++row) {
      add_some(row, 1, {std::max(begin, end), range_of(row).end});
    }
  }

  template <class T>
  void AddWidened(T, size_t row, size_t rows, KeyRange keys, size_t dim, float* records) {
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

  template <class Products>
  void AddWidened(PairedBF16<Products>, size_t row, size_t rows, KeyRange keys, size_t dim,
                  float* records) {
    ForPairs(keys.begin, keys.end, [&](auto seen, size_t first, size_t end) HWY_ATTR {
      using T = PanelPairs<Products, seen.value>;
      const float* values = values_ + dim * kValueStep + first % kValueStep / 2 * kPanel;
      Multiply<Ahead::kNothing, T>(rows, {.a = scores_ + row * kChunkTokens + first / 2,
                                          .a_stride = kChunkTokens,
                                          .b = reinterpret_cast<const T*>(values),
                                          .b_stride = kPanel,
                                          .n = (end - first) / 2,
                                          .c = RecordOf(records, row).output() + dim,
                                          .c_stride = shape_.record,
                                          .start = Start::kLoad});
    });
  }

  template <class T>
  void AddStored(T, size_t row, size_t rows, int64_t start, KeyRange keys, float* records) {
    ForRuns(start, keys, [&](size_t key, size_t run) HWY_ATTR {
      const int64_t token = start + static_cast<int64_t>(key);
      const T* values = At<T>(KvSide::kValues, token);
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

  template <class Products>
  void AddStored(PairedBF16<Products>, size_t row, size_t rows, int64_t start, KeyRange keys,
                 float* records) {
    ForPairs(keys.begin, keys.end, [&](auto seen, size_t first, size_t end) HWY_ATTR {
      using T = StoredPairs<Products, seen.value>;
      ForRuns(start, {first, end}, [&](size_t key, size_t run) HWY_ATTR {
        const int64_t token = start + static_cast<int64_t>(key);
        const T* values = At<T>(KvSide::kValues, token);
        const T* next = NextValues<T>(token);
        for (size_t dim = 0; dim < shape_.head_dim; dim += kPanel) {
          Multiply<Ahead::kNext, T>(rows, {.a = scores_ + row * kChunkTokens + key / 2,
                                           .a_stride = kChunkTokens,
                                           .b = values + dim,
                                           .b_stride = 2 * shape_.head_dim,
                                           .n = run / 2,
                                           .c = RecordOf(records, row).output() + dim,
                                           .c_stride = shape_.record,
                                           .start = Start::kLoad,
                                           .next = next + dim});
        }
      });
    });
  }

  void AddStored(QuantisedRow, size_t row, size_t rows, int64_t start, KeyRange keys,
                 float* records) {
    for (size_t key = keys.begin; key < keys.end; key += kPanel) {
      const KeyRange panel = {key, std::min(keys.end, key + kPanel)};
      ForRuns(start, panel, [&](size_t first, size_t run) HWY_ATTR {
        const int64_t token = start + static_cast<int64_t>(first);
        Unpack(KvSide::kValues, At<QuantisedRow>(KvSide::kValues, token),
               NextValues<QuantisedRow>(token), run, first - key);
      });
      for (size_t dim = 0; dim < shape_.head_dim; dim += kPanel) {
        Multiply<Ahead::kNothing, Code>(rows,
                                        {.a = scores_ + row * kChunkTokens + key,
                                         .a_stride = kChunkTokens,
                                         .b = codes_.codes + dim,
                                         .b_stride = shape_.head_dim,
                                         .n = panel.end - panel.begin,
                                         .c = RecordOf(records, row).output() + dim,
                                         .c_stride = shape_.record,
                                         .start = Start::kLoad,
                                         .scales = codes_.scales + dim / kGroupChannels * kPanel});
      }
    }
  }

  // The address of what is read one panel after the values of `token`: further values or, at the
  // end of a chunk, the keys of the next one.
  template <class T>
  const T* NextValues(int64_t token) const {
    const int64_t next = token + kPanel;
    if (next >= seen_[num_rows_ - 1].end) return At<T>(KvSide::kValues, token);
    return At<T>(next % kChunkTokens < int64_t{kPanel} ? KvSide::kKeys : KvSide::kValues, next);
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

  // Writes the rows of `out`. Rows without a context are 0, their lse -infinity.
  void StoreOutput() {
    const hn::CappedTag<float, 8> d;  // head_dim is a multiple of 8
    const float value_unit = args_.pool.v_scale * StoredUnit(args_.pool.dtype);
    for (size_t row = 0; row < num_rows_; ++row) {
      const Record total = RecordOf(totals_, row);
      const float sum = FoldSum(total.sums());
      const auto scale = hn::Set(d, sum == 0 ? 0.0f : value_unit / sum);
      if (quantised()) MixGroups(total.output(), shape_.head_dim);
      float* out = HeadOf(args_.out, row);
      for (size_t i = 0; i < shape_.head_dim; i += hn::Lanes(d)) {
        hn::StoreU(hn::Mul(hn::LoadU(d, total.output() + i), scale), d, out + i);
      }
      if (masses_.present()) {
        masses_.SetTotal(block_.begin + static_cast<int64_t>(row), total.max(), sum);
      }
      if (!args_.lse.present()) continue;
      const FlatRow at = FlatRowOf(row);
      args_.lse.Row<float>(at.token)[at.head] = NaturalLog(total.max(), sum);
    }
  }

  // Returns ln(2^max * sum).
  static float NaturalLog(float max, float sum) {
    constexpr double kLn2 = 0x1.62e42fefa39efp-1;
    return sum == 0 ? kMinusInfinity
                    : static_cast<float>(max * kLn2 + std::log(static_cast<double>(sum)));
  }

  const BlockMasses masses_;
  float* values_;    // V of one step of kValueStep tokens
  float* partials_;  // [row] records of one chunk
  float* totals_;    // [row] records merged so far
};

}  // namespace HWY_NAMESPACE
}  // namespace tandem::cpu
HWY_AFTER_NAMESPACE();

#endif  // TANDEM_KERNELS_CPU_ATTENTION_BLOCK_INL_H_
