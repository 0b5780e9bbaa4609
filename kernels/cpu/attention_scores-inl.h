// Scores of one block of query rows. Included once per target (Highway's foreach_target).
#if defined(TANDEM_KERNELS_CPU_ATTENTION_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_CPU_ATTENTION_SCORES_INL_H_
#undef TANDEM_KERNELS_CPU_ATTENTION_SCORES_INL_H_
#else
#define TANDEM_KERNELS_CPU_ATTENTION_SCORES_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <limits>
#include <type_traits>

#include "kernels/cpu/attention_pairs-inl.h"
#include "kernels/cpu/attention_product-inl.h"
#include "kernels/cpu/attention_tile-inl.h"
#include "kernels/cpu/processor.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu {
namespace HWY_NAMESPACE {

// The half-open range of keys of a chunk that one row sees.
struct KeyRange {
  size_t begin;
  size_t end;
};

inline constexpr KeyRange kWholeChunk = {0, kChunkTokens};

inline constexpr float kLog2E = 0x1.715476p+0f;
inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Calls body(T()) with the type as which the pool is read.
template <class Body>
HWY_INLINE void WithStoredType(DType dtype, KvProducts products, const Body& body) {
  if (products == KvProducts::kPairs) {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86_64
    if (HasBF16Dots()) return body(PairedBF16<NativePairProducts>());
#endif
    return body(PairedBF16<PairProducts>());
  }
  switch (dtype) {
    case DType::kBF16:
      return body(hwy::bfloat16_t());
    case DType::kF16:
      return body(hwy::float16_t());
    case DType::kF8E4M3:
      return body(F8E4M3());
    case DType::kK8V8:
    case DType::kK6V5:
    case DType::kK4V3:
      return body(QuantisedRow());
    default:
      return body(float());
  }
}

// The scores of a block of query rows with the keys of one chunk after the other, as exponents of
// 2: logit * log2(e).
class RowScores {
 public:
  RowScores(const AttentionArgs& args, KvProducts products, const RowBlock& block, float* scratch)
      : args_(args),
        products_(products),
        block_(block),
        shape_(args),
        table_(args.block_tables.Of(static_cast<size_t>(block.seq)).data()),
        num_rows_(static_cast<size_t>(block.end - block.begin)),
        rows_at_{args.pool.RowAt(KvSide::kKeys, block.kv_head, 0),
                 args.pool.RowAt(KvSide::kValues, block.kv_head, 0)} {
    const int64_t first_query = block.begin / shape_.group;
    query_of_end_ = first_query - Visible(args, block.seq, first_query).end;
    int64_t query = first_query;
    int64_t head = block.begin % shape_.group;
    for (size_t row = 0; row < num_rows_; ++row) {
      seen_[row] = Visible(args, block.seq, query);
      if (++head < shape_.group) continue;
      head = 0;
      ++query;
    }
    queries_ = scratch;
    keys_ = queries_ + kMaxBlockRows * shape_.padded_dim;
    codes_ = {.codes = reinterpret_cast<Code*>(keys_ + kPanel * shape_.padded_dim),
              .scales = keys_ + kPanel * (shape_.padded_dim + shape_.padded_dim / sizeof(float))};
    scores_ = keys_ + kPanel * shape_.padded_dim + shape_.CodeFloats();
  }

  // Queries carry the scale, log2(e) and what stored keys must be multiplied by, so that a product
  // is an exponent of 2. Quantised keys are transformed, and so the queries are: the products stay
  // the same.
  void LoadQueries() {
    const hn::CappedTag<float, 8> d;
    const auto scale = hn::Set(d, args_.scale * kLog2E * KeyUnit());
    for (size_t row = 0; row < num_rows_; ++row) {
      const float* from = HeadOf(args_.q, row);
      float* to = queries_ + row * shape_.head_dim;
      for (size_t i = 0; i < shape_.head_dim; i += hn::Lanes(d)) {
        hn::StoreU(hn::Mul(hn::LoadU(d, from + i), scale), d, to + i);
      }
      if (quantised()) MixGroups(to, shape_.head_dim);
      // The last vector may reach into the next row of queries, which is written later.
      if (paired()) RoundInPlace(to, 0, shape_.head_dim);
    }
  }

  // Computes the scores of the keys of a chunk, or of some of its panels, that any row sees. Scores
  // of keys that a row does not see itself are left undefined. `kAfter` is what is read next.
  template <class T, KvSide kAfter = KvSide::kValues>
  void ScoreChunk(int64_t chunk, KeyRange panels = kWholeChunk) {
    SetRanges(chunk, panels);
    const int64_t start = chunk * kChunkTokens;
    const KeyRange all = AllKeys();
    for (size_t key = all.begin / kPanel * kPanel; key < all.end; key += kPanel) {
      for (size_t group = key; group < std::min(all.end, key + kPanel); group += kGroup) {
        const T* eights[kGroup / 8];
        const T* next[kGroup / 8];
        FindEights(KvSide::kKeys, start, group, all, eights);
        FindNext(start, group, all, kAfter, next);
        WidenOrScore(eights, next, group);
      }
      if (!direct()) ComputeScores<T>(key);
    }
  }

  // Replaces each score that a row sees by softcap * tanh(score / softcap).
  void CapScores(size_t row) {
    const F32Tag d;
    const F32 cap = hn::Set(d, args_.softcap * kLog2E);
    const F32 twice = hn::Set(d, 2.0f / args_.softcap);
    const F32 one = hn::Set(d, 1.0f);
    const F32 flat = hn::Set(d, 100.0f);  // where tanh is 1 in every bit
    float* scores = scores_ + row * kChunkTokens;
    for (size_t i = AlignedRange(row).begin; i < AlignedRange(row).end; i += kLanes) {
      F32 x = hn::Mul(hn::Load(d, scores + i), twice);
      x = hn::IfThenElse(hn::Gt(x, flat), flat, x);  // NaN stays NaN
      const F32 tanh = hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(one, Exp2(x))));
      hn::Store(hn::Mul(cap, tanh), d, scores + i);
    }
  }

  // The scores that a row does not see become -infinity, as far as whole vectors reach: the end of
  // what AlignedRange gives.
  void MaskScores(size_t row) {
    const KeyRange range = ranges_[row];
    const KeyRange aligned = AlignedRange(row);
    float* scores = scores_ + row * kChunkTokens;
    std::fill(scores + aligned.begin, scores + range.begin, kMinusInfinity);
    std::fill(scores + range.end, scores + aligned.end, kMinusInfinity);
  }

  KeyRange AlignedRange(size_t row) const {
    return {ranges_[row].begin / kSumLanes * kSumLanes,
            (ranges_[row].end + kSumLanes - 1) / kSumLanes * kSumLanes};
  }

  // Turns scores of a row into weights: log2(sum(2^score)) over all keys that the row sees, and a
  // factor of each weight.
  struct RowWeight {
    float lse2;
    float factor;
  };

  // Adds the softmax weights of every row, times its factor, to sums[key of the chunk at hand].
  // weight_of(token, head) is the row's RowWeight.
  template <class WeightOf>
  void AddWeights(const WeightOf& weight_of, float* HWY_RESTRICT sums) {
    const F32Tag d;
    for (size_t row = 0; row < num_rows_; ++row) {
      if (ranges_[row].begin == ranges_[row].end) continue;
      if (args_.softcap > 0) CapScores(row);
      MaskScores(row);
      const FlatRow at = FlatRowOf(row);
      const RowWeight row_weight = weight_of(at.token, at.head);
      const F32 lse = hn::Set(d, row_weight.lse2);
      const F32 factor = hn::Set(d, row_weight.factor);
      const float* scores = scores_ + row * kChunkTokens;
      for (size_t i = AlignedRange(row).begin; i < AlignedRange(row).end; i += kLanes) {
        const F32 weight = Exp2(hn::Sub(hn::Load(d, scores + i), lse));
        hn::StoreU(hn::MulAdd(weight, factor, hn::LoadU(d, sums + i)), d, sums + i);
      }
    }
  }

 protected:
  struct FlatRow {
    int64_t token;  // its row in q
    int64_t head;   // its index among all query heads
  };
  FlatRow FlatRowOf(size_t row) const {
    const int64_t query = seen_[row].end + query_of_end_;
    const int64_t head = block_.begin + static_cast<int64_t>(row) - query * shape_.group;
    return {args_.query_starts[static_cast<size_t>(block_.seq)] + query,
            block_.kv_head * shape_.group + head};
  }

  KeyRange AllKeys() const { return {ranges_[0].begin, ranges_[num_rows_ - 1].end}; }
  bool quantised() const { return IsQuantisedKv(args_.pool.dtype); }
  bool paired() const { return products_ == KvProducts::kPairs; }
  // The number of words of a key or a query.
  template <class T>
  size_t Width() const {
    return shape_.head_dim / kPairing<T>;
  }
  // Few rows read K and V straight from the pool. For many, a panel of K and a step of V are
  // widened once.
  bool direct() const { return num_rows_ <= kTileRows && shape_.head_dim % kPanel == 0; }

  // Sets ranges_ for a chunk. Rows rise in position, so begin and end rise with the row.
  void SetRanges(int64_t chunk, KeyRange panels = kWholeChunk) {
    const int64_t start = chunk * kChunkTokens;
    const auto first = static_cast<int64_t>(panels.begin);
    const auto last = static_cast<int64_t>(panels.end);
    for (size_t row = 0; row < num_rows_; ++row) {
      const int64_t begin = std::clamp(seen_[row].begin - start, first, last);
      const int64_t end = std::clamp(seen_[row].end - start, begin, last);
      ranges_[row] = {static_cast<size_t>(begin), static_cast<size_t>(end)};
    }
  }

  // The address of a row's head in q or in out.
  float* HeadOf(const TensorView& tensor, size_t row) const {
    const FlatRow at = FlatRowOf(row);
    return tensor.Row<float>(at.token) + at.head * shape_.head_dim;
  }

  // The address of K or V of a token. Each eight tokens from a multiple of eight on follow one
  // another.
  template <class T>
  const T* At(KvSide side, int64_t token) const {
    const KvPoolView& pool = args_.pool;
    const int64_t offset = token & (pool.block_tokens - 1);
    const std::byte* extent =
        pool.data + (int64_t{args_.layer} * pool.num_blocks + table_[token >> shape_.block_shift]) *
                        shape_.extent_bytes;
    const auto s = static_cast<size_t>(side);
    return reinterpret_cast<const T*>(extent + rows_at_[s] + offset * shape_.row_bytes[s]);
  }

  // Finds where the tokens of a group of the chunk at `start` lie, eight at each address. Eight
  // tokens that no row sees may have no block at all, so others stand in for them.
  template <class T>
  void FindEights(KvSide side, int64_t start, size_t group, KeyRange seen, const T** eights) const {
    const size_t stand_in = std::max(seen.begin, group) / 8 * 8;
    for (size_t i = 0; i < kGroup / 8; ++i) {
      const size_t key = group + 8 * i;
      const bool any_seen = key + 8 > seen.begin && key < seen.end;
      eights[i] = At<T>(side, start + static_cast<int64_t>(any_seen ? key : stand_in));
    }
  }

  // Finds what is read after a group of keys: the next group or, at the end, the first one of
  // `after`.
  template <class T>
  void FindNext(int64_t start, size_t group, KeyRange seen, KvSide after, const T** next) const {
    if (group + kGroup < seen.end) {
      FindEights(KvSide::kKeys, start, group + kGroup, seen, next);
    } else {
      FindEights(after, start, seen.begin / kGroup * kGroup, seen, next);
    }
  }

  // Scores a group of keys or widens it for ComputeScores, and asks for what lies at `next`
  // meanwhile.
  template <class T>
  void WidenOrScore(const T* const* eights, const T* const* next, size_t group) {
    if (direct()) {
      ScoreGroup(eights, next, group);
    } else {
      WidenKeys<T>(eights, next, Width<T>(), codes_.scales, keys_ + group % kPanel);
    }
  }
  void WidenOrScore(const QuantisedRow* const* eights, const QuantisedRow* const* next,
                    size_t group) {
    const Code* codes[kGroup / 8];
    for (size_t i = 0; i < kGroup / 8; ++i) {
      codes[i] = codes_.codes + 8 * i * shape_.head_dim;
      Unpack(KvSide::kKeys, eights[i], next[i], 8, 8 * i);
    }
    WidenOrScore<Code>(codes, codes, group);
  }

  void Unpack(KvSide side, const QuantisedRow* rows, const QuantisedRow* next, size_t count,
              size_t first) const {
    UnpackRows(KvBits(args_.pool.dtype, side), rows, next, count, shape_.head_dim, first, codes_);
  }

  template <class T>
  void ScoreGroup(const T* const* eights, const T* const* next, size_t group) {
    const QueryTile tile = {.queries = queries_,
                            .query_stride = shape_.head_dim,
                            .width = Width<T>(),
                            .key_scales = codes_.scales,
                            .scores = scores_ + group,
                            .scores_stride = kChunkTokens};
    switch (std::bit_ceil(num_rows_)) {  // scratch has room for the rows beyond num_rows_
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

 private:
  float KeyUnit() const { return args_.pool.k_scale * StoredUnit(args_.pool.dtype); }

  // `Stored` is the type of the pool.
  template <class Stored>
  void ComputeScores(size_t key) {
    using T = PanelOf<Stored>;
    for (size_t row = 0; row < num_rows_; row += kTileRows) {
      const size_t rows = std::min(kTileRows, num_rows_ - row);
      if (ranges_[row].begin >= key + kPanel || ranges_[row + rows - 1].end <= key) continue;
      Multiply<Ahead::kNothing, T>(rows, {.a = queries_ + row * shape_.head_dim,
                                          .a_stride = shape_.head_dim,
                                          .b = reinterpret_cast<const T*>(keys_),
                                          .b_stride = kPanel,
                                          .n = Width<Stored>(),
                                          .c = scores_ + row * kChunkTokens + key,
                                          .c_stride = kChunkTokens,
                                          .start = Start::kZero});
    }
  }

 protected:
  const AttentionArgs& args_;
  const KvProducts products_;
  const RowBlock& block_;
  const AttentionShape shape_;
  const int32_t* table_;  // block table of the block's sequence
  const size_t num_rows_;
  int64_t query_of_end_;      // less the end of what it sees: a division per row would cost more
  const int64_t rows_at_[2];  // bytes from an extent to the head's rows of K, and of V
  VisibleKeys seen_[kMaxBlockRows];
  KeyRange ranges_[kMaxBlockRows];  // the keys of the current chunk that each row sees
  float* queries_;                  // [row][head_dim], scaled; pairs are its first half
  float* keys_;                     // [word of a key][32], one panel
  CodeTile codes_;                  // the current quantised rows, unpacked
  float* scores_;                   // [row][key]
};

}  // namespace HWY_NAMESPACE
}  // namespace tandem::cpu
HWY_AFTER_NAMESPACE();

#endif  // TANDEM_KERNELS_CPU_ATTENTION_SCORES_INL_H_
