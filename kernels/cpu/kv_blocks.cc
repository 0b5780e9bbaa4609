#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/kv_blocks.cc"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu {
namespace HWY_NAMESPACE {

using U32 = hn::Vec<U32Tag>;

// Round to nearest even in integers, the same on every target. NaN stays NaN.
struct ToBF16 {
  static U32 Narrow(U32 bits) {
    const U32Tag d;
    const U32 odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
    const U32 rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7fff))));
    const U32 quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(d, 0x40));
    const auto nan = hn::Gt(hn::And(bits, hn::Set(d, 0x7fffffff)), hn::Set(d, 0x7f800000));
    return hn::IfThenElse(nan, quiet, rounded);
  }
};

// Beyond the largest half is infinity, below the smallest normal one are the subnormal halves.
struct ToF16 {
  static U32 Narrow(U32 bits) {
    const U32Tag d;
    const F32Tag df;
    const U32 sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 0x8000));
    const U32 magnitude = hn::And(bits, hn::Set(d, 0x7fffffff));
    const U32 odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d, 1));
    const U32 rebased = hn::Sub(hn::Add(magnitude, hn::Set(d, 0xfff)), hn::Set(d, 112u << 23));
    const U32 normal = hn::Min(hn::ShiftRight<13>(hn::Add(rebased, odd)), hn::Set(d, 0x7c00));
    // 0.5 has the subnormal halves' unit as its last place, so that the addition rounds to it.
    const F32 half = hn::Set(df, 0.5f);
    const U32 subnormal =
        hn::Sub(hn::BitCast(d, hn::Add(hn::BitCast(df, magnitude), half)), hn::BitCast(d, half));
    const auto small = hn::Lt(magnitude, hn::Set(d, 113u << 23));
    const auto nan = hn::Gt(magnitude, hn::Set(d, 0x7f800000));
    const U32 finite = hn::IfThenElse(small, subnormal, normal);
    return hn::Or(sign, hn::IfThenElse(nan, hn::Set(d, 0x7e00), finite));
  }
};

template <class To>
void NarrowRow(const float* HWY_RESTRICT x, size_t n, uint16_t* HWY_RESTRICT out) {
  const U32Tag d;
  const hn::Rebind<uint16_t, U32Tag> d16;
  const auto narrow = [](U32 bits) HWY_ATTR {
    return hn::DemoteTo(hn::Rebind<uint16_t, U32Tag>(), hn::BitCast(I32Tag(), To::Narrow(bits)));
  };
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    hn::StoreU(narrow(hn::BitCast(d, hn::LoadU(F32Tag(), x + i))), d16, out + i);
  }
  if (i == n) return;
  HWY_ALIGN float tail[kLanes] = {};
  HWY_ALIGN uint16_t narrowed[kLanes];
  std::memcpy(tail, x + i, (n - i) * sizeof(float));
  hn::Store(narrow(hn::BitCast(d, hn::Load(F32Tag(), tail))), d16, narrowed);
  std::memcpy(out + i, narrowed, (n - i) * sizeof(uint16_t));
}

void StoreRow(const float* x, const KvPoolView& pool, int64_t element, std::byte* extent) {
  std::byte* out = extent + element * SizeOf(pool.dtype);
  const auto n = static_cast<size_t>(pool.head_dim);
  if (pool.dtype == DType::kBF16) {
    NarrowRow<ToBF16>(x, n, reinterpret_cast<uint16_t*>(out));
  } else if (pool.dtype == DType::kF16) {
    NarrowRow<ToF16>(x, n, reinterpret_cast<uint16_t*>(out));
  } else {
    std::memcpy(out, x, n * sizeof(float));
  }
}

void StoreTokens(const StoreKvArgs& args, int64_t begin, int64_t end) {
  const KvPoolView& pool = args.pool;
  const int64_t head_elements = int64_t{pool.block_tokens} * pool.head_dim;
  for (int64_t t = begin; t < end; ++t) {
    const int64_t slot = args.slots[static_cast<size_t>(t)];
    if (slot < 0) continue;
    const auto block = static_cast<int32_t>(slot / pool.block_tokens);
    std::byte* extent = pool.Extent(args.layer, block);
    const auto* k = args.k.Row<const float>(t);
    const auto* v = args.v.Row<const float>(t);
    int64_t element = slot % pool.block_tokens * pool.head_dim;
    for (int32_t head = 0; head < pool.num_kv_heads; ++head, element += head_elements) {
      StoreRow(k + int64_t{head} * pool.head_dim, pool, element, extent);
      StoreRow(v + int64_t{head} * pool.head_dim, pool, element + pool.num_kv_heads * head_elements,
               extent);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::cpu {

HWY_EXPORT(StoreTokens);

void StoreKv(ThreadPool& pool, const StoreKvArgs& args) {
  const auto tokens = &HWY_DYNAMIC_DISPATCH(StoreTokens);
  ForRows(pool, args.k.rows(), 2 * args.k.RowElements(),
          [&](int64_t begin, int64_t end) { tokens(args, begin, end); });
}

void CopyBlocks(ThreadPool& pool, const CopyBlocksArgs& args) {
  const int64_t num_layers = args.pool.num_layers;
  const auto bytes = static_cast<size_t>(args.pool.ExtentBytes());
  const auto count = static_cast<int64_t>(args.pairs.size()) * num_layers;
  pool.ParallelFor(count, [&](int64_t index, int) {
    const auto& [from, to] = args.pairs[static_cast<size_t>(index / num_layers)];
    const auto layer = static_cast<int32_t>(index % num_layers);
    std::memcpy(args.pool.Extent(layer, to), args.pool.Extent(layer, from), bytes);
  });
}

void GatherBlocks(ThreadPool& pool, const MoveBlocksArgs& args) {
  const auto bytes = static_cast<size_t>(args.pool.ExtentBytes());
  pool.ParallelFor(static_cast<int64_t>(args.items.size()), [&](int64_t index, int) {
    const auto i = static_cast<size_t>(index);
    const LayerBlock& item = args.items[i];
    std::memcpy(args.staging.data() + i * bytes, args.pool.Extent(item.layer, item.block), bytes);
  });
}

void ScatterBlocks(ThreadPool& pool, const MoveBlocksArgs& args) {
  const auto bytes = static_cast<size_t>(args.pool.ExtentBytes());
  pool.ParallelFor(static_cast<int64_t>(args.items.size()), [&](int64_t index, int) {
    const auto i = static_cast<size_t>(index);
    const LayerBlock& item = args.items[i];
    std::memcpy(args.pool.Extent(item.layer, item.block), args.staging.data() + i * bytes, bytes);
  });
}

}  // namespace tandem::cpu
#endif  // HWY_ONCE
