// Attention over K and V of bf16 by products of pairs: queries and softmax weights are rounded to
// bf16, sums are f32. A word of a query or a key is two neighbouring dimensions, a word of V one
// dimension of two neighbouring tokens, of which the first is at an even position. Included once
// per target (Highway's foreach_target).
#if defined(TANDEM_KERNELS_CPU_ATTENTION_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_CPU_ATTENTION_PAIRS_INL_H_
#undef TANDEM_KERNELS_CPU_ATTENTION_PAIRS_INL_H_
#else
#define TANDEM_KERNELS_CPU_ATTENTION_PAIRS_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/attention_product-inl.h"
#include "kernels/cpu/attention_transpose-inl.h"
#include "kernels/cpu/products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu {
namespace HWY_NAMESPACE {

// Two neighbouring elements of a row of a bf16 pool, to be multiplied by `Products`.
template <class Products>
struct PairedBF16 : Products {
  float word;
};

template <class T>
inline constexpr bool kIsPaired = false;
template <class Products>
inline constexpr bool kIsPaired<PairedBF16<Products>> = true;

// How many elements of a key one word holds, and how many tokens of V.
template <class T>
inline constexpr size_t kPairing = kIsPaired<T> ? 2 : 1;

// Which tokens of a pair a row sees. The other one takes no part, whatever its V is: 0 * NaN is
// NaN.
enum class Seen : uint8_t { kBoth, kFirst, kSecond };

template <class D>
HWY_INLINE hn::Vec<D> LoadWide(D d, const hwy::bfloat16_t* first, const hwy::bfloat16_t* second,
                               Seen seen) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint16_t, D> d16;
  const auto load = [&](const hwy::bfloat16_t* row) HWY_ATTR {
    return hn::PromoteTo(du, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(row)));
  };
  if (seen == Seen::kFirst) return hn::BitCast(d, load(first));
  const auto high = hn::ShiftLeft<16>(load(second));
  return hn::BitCast(d, seen == Seen::kSecond ? high : hn::Or(high, load(first)));
}

// Words of a panel, which lie there as floats do.
template <class Products, Seen kSeen>
struct PanelPairs : Products {
  static HWY_INLINE void Load(const PanelPairs* HWY_RESTRICT p, size_t /*b_stride*/,
                              F32 (&x)[kTileVectors]) {
    LoadWidePair(&p->word, x);
    if constexpr (kSeen == Seen::kBoth) return;
    const U32Tag d;
    const auto mask = hn::Set(d, kSeen == Seen::kFirst ? 0x0000FFFFu : 0xFFFF0000u);
    for (F32& words : x) words = hn::BitCast(F32Tag(), hn::And(hn::BitCast(d, words), mask));
  }

  float word;
};

// What lies in a panel of keys that are stored as T: f32, or words whose pairs are both seen.
template <class T>
struct PanelType {
  using Type = float;
};
template <class Products>
struct PanelType<PairedBF16<Products>> {
  using Type = PanelPairs<Products, Seen::kBoth>;
};
template <class T>
using PanelOf = typename PanelType<T>::Type;

// V of two neighbouring tokens in the pool: two rows, half a stride apart.
template <class Products, Seen kSeen>
struct StoredPairs : Products {
  static HWY_INLINE void Load(const StoredPairs* HWY_RESTRICT p, size_t b_stride,
                              F32 (&x)[kTileVectors]) {
    const F32Tag d;
    const hwy::bfloat16_t* first = &p->first;
    const hwy::bfloat16_t* second = first + b_stride / 2;
    x[0] = LoadWide(d, first, second, kSeen);
    x[1] = LoadWide(d, first + kLanes, second + kLanes, kSeen);
  }
  static HWY_INLINE void Fetch(const StoredPairs* p, size_t b_stride) {
    hwy::Prefetch(p);
    hwy::Prefetch(p + b_stride / 2);
  }

  hwy::bfloat16_t first;
};

#if HWY_TARGET == HWY_SCALAR
template <class Products>
HWY_INLINE F32 LoadWide(F32Tag d, const PairedBF16<Products>* p) {
  return hn::LoadU(d, &p->word);
}
#else
template <class Products>
struct Column<PairedBF16<Products>> : Column<float> {
  static HWY_INLINE hn::Vec<RowBits> Load(const PairedBF16<Products>* row) {
    return Column<float>::Load(&row->word);
  }
};
#endif

// Puts `pairs` pairs of rows of V into out[d/32][pair][32]; panel_stride floats from one panel to
// the next.
inline void PairValues(const hwy::bfloat16_t* HWY_RESTRICT rows, size_t pairs, size_t head_dim,
                       size_t panel_stride, float* HWY_RESTRICT out) {
  const F32Tag d;
  const hn::CappedTag<float, 8> eight;
  const size_t whole = head_dim / kLanes * kLanes;
  const auto at = [&](size_t dim) { return out + dim / kPanel * panel_stride + dim % kPanel; };
  for (size_t i = 0; i < pairs; ++i, rows += 2 * head_dim, out += kPanel) {
    const hwy::bfloat16_t* second = rows + head_dim;
    for (size_t dim = 0; dim < whole; dim += kLanes) {
      hn::StoreU(LoadWide(d, rows + dim, second + dim, Seen::kBoth), d, at(dim));
    }
    if (whole == head_dim) continue;
    hn::StoreU(LoadWide(eight, rows + whole, second + whole, Seen::kBoth), eight, at(whole));
  }
}

// Rounds numbers [begin, end) and puts each pair of them, as a word, at half its index. Whole
// vectors of pairs are read and written.
inline void RoundInPlace(float* numbers, size_t begin, size_t end) {
  const F32Tag d;
  for (size_t i = begin / (2 * kLanes) * (2 * kLanes); i < end; i += 2 * kLanes) {
    hn::StoreU(RoundToWords(d, numbers + i), d, numbers + i / 2);
  }
}

// Calls add(seen, first, end) for the pairs of the tokens `begin` to `end`, in their order: a first
// one of which only the second token is among them, those of which both are, and a last one. `seen`
// is a constant.
template <class Add>
HWY_INLINE void ForPairs(size_t begin, size_t end, const Add& add) {
  using std::integral_constant;
  if (begin >= end) return;
  if (begin % 2 != 0) {
    add(integral_constant<Seen, Seen::kSecond>(), begin - 1, begin + 1);
    ++begin;
  }
  const size_t whole_end = end / 2 * 2;
  if (begin < whole_end) add(integral_constant<Seen, Seen::kBoth>(), begin, whole_end);
  if (begin <= whole_end && whole_end < end) {
    add(integral_constant<Seen, Seen::kFirst>(), whole_end, whole_end + 2);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem::cpu
HWY_AFTER_NAMESPACE();

#endif  // TANDEM_KERNELS_CPU_ATTENTION_PAIRS_INL_H_
