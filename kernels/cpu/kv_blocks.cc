#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/quantised_row.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/kv_blocks.cc"
#include "hwy/foreach_target.h"
#include "kernels/cpu/quantised_row-inl.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu {
namespace HWY_NAMESPACE {

using U32 = hn::Vec<U32Tag>;

// f32 to bf16, to nearest even, by integers: the same on every target. NaN stays NaN.
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

// f32 to f16, to nearest even: infinity beyond the largest f16, subnormals below the smallest
// normal one.
struct ToF16 {
  static U32 Narrow(U32 bits) {
    const U32Tag d;
    const F32Tag df;
    const U32 sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 0x8000));
    const U32 magnitude = hn::And(bits, hn::Set(d, 0x7fffffff));
    const U32 odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d, 1));
    const U32 rebased = hn::Sub(hn::Add(magnitude, hn::Set(d, 0xfff)), hn::Set(d, 112u << 23));
    const U32 normal = hn::Min(hn::ShiftRight<13>(hn::Add(rebased, odd)), hn::Set(d, 0x7c00));
    // The last place of 0.5 is the unit of f16's subnormals, so that the addition rounds to it.
    const F32 half = hn::Set(df, 0.5f);
    const U32 subnormal =
        hn::Sub(hn::BitCast(d, hn::Add(hn::BitCast(df, magnitude), half)), hn::BitCast(d, half));
    const auto small = hn::Lt(magnitude, hn::Set(d, 113u << 23));
    const auto nan = hn::Gt(magnitude, hn::Set(d, 0x7f800000));
    const U32 finite = hn::IfThenElse(small, subnormal, normal);
    return hn::Or(sign, hn::IfThenElse(nan, hn::Set(d, 0x7e00), finite));
  }
};

// f32 to e4m3: values beyond the largest one, infinity too, are clamped to it. NaN has no sign.
struct ToF8E4M3 {
  static U32 Narrow(U32 bits) {
    const U32Tag d;
    const F32Tag df;
    const U32 sign = hn::And(hn::ShiftRight<24>(bits), hn::Set(d, 0x80));
    const U32 all = hn::And(bits, hn::Set(d, 0x7fffffff));
    const U32 magnitude = hn::Min(all, hn::BitCast(d, hn::Set(df, 448.0f)));
    const U32 odd = hn::And(hn::ShiftRight<20>(magnitude), hn::Set(d, 1));
    const U32 rebased = hn::Sub(hn::Add(magnitude, hn::Set(d, 0x7ffff)), hn::Set(d, 120u << 23));
    const U32 normal = hn::ShiftRight<20>(hn::Add(rebased, odd));
    // The last place of 16384 is the unit of e4m3's subnormals, 2^-9, so that the addition rounds
    // to it.
    const F32 base = hn::Set(df, 16384.0f);
    const U32 subnormal =
        hn::Sub(hn::BitCast(d, hn::Add(hn::BitCast(df, magnitude), base)), hn::BitCast(d, base));
    const auto small = hn::Lt(magnitude, hn::Set(d, 121u << 23));
    const auto nan = hn::Gt(all, hn::Set(d, 0x7f800000));
    return hn::IfThenElse(nan, hn::Set(d, 0x7f),
                          hn::Or(sign, hn::IfThenElse(small, subnormal, normal)));
  }
};

// Stores x[0..n) / scale; the scale of 16-bit types is 1.
template <class To, class T>
void NarrowRow(const float* HWY_RESTRICT x, size_t n, float scale, T* HWY_RESTRICT out) {
  const F32Tag d;
  const hn::Rebind<T, F32Tag> d_out;
  const F32 divisor = hn::Set(d, scale);
  const auto narrow = [&](F32 values) HWY_ATTR {
    if constexpr (sizeof(T) == 1) values = hn::Div(values, divisor);
    const U32 narrowed = To::Narrow(hn::BitCast(U32Tag(), values));
    return hn::DemoteTo(hn::Rebind<T, U32Tag>(), hn::BitCast(I32Tag(), narrowed));
  };
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    hn::StoreU(narrow(hn::LoadU(d, x + i)), d_out, out + i);
  }
  if (i == n) return;
  HWY_ALIGN float tail[kLanes] = {};
  HWY_ALIGN T narrowed[kLanes];
  std::memcpy(tail, x + i, (n - i) * sizeof(float));
  hn::Store(narrow(hn::Load(d, tail)), d_out, narrowed);
  std::memcpy(out + i, narrowed, (n - i) * sizeof(T));
}

void StoreRow(const float* x, const KvPoolView& pool, KvSide side, std::byte* out) {
  const auto n = static_cast<size_t>(pool.head_dim);
  const float scale = side == KvSide::kKeys ? pool.k_scale : pool.v_scale;
  switch (pool.dtype) {
    case DType::kBF16:
      return NarrowRow<ToBF16>(x, n, scale, reinterpret_cast<uint16_t*>(out));
    case DType::kF16:
      return NarrowRow<ToF16>(x, n, scale, reinterpret_cast<uint16_t*>(out));
    case DType::kF8E4M3:
      return NarrowRow<ToF8E4M3>(x, n, scale, reinterpret_cast<uint8_t*>(out));
    case DType::kK8V8:
    case DType::kK6V5:
    case DType::kK4V3:
      return QuantiseFloats(x, n, KvBits(pool.dtype, side), out);
    default:
      std::memcpy(out, x, n * sizeof(float));
  }
}

void QuantiseRow(const float* x, int32_t head_dim, int32_t bits, std::byte* out) {
  QuantiseFloats(x, static_cast<size_t>(head_dim), bits, out);
}

void StoreTokens(const StoreKvArgs& args, int64_t begin, int64_t end) {
  const KvPoolView& pool = args.pool;
  for (int64_t t = begin; t < end; ++t) {
    const int64_t slot = args.slots[static_cast<size_t>(t)];
    if (slot < 0) continue;
    const auto block = static_cast<int32_t>(slot / pool.block_tokens);
    std::byte* const extent = pool.Extent(args.layer, block);
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const auto* x = (side == KvSide::kKeys ? args.k : args.v).Row<const float>(t);
      std::byte* out = extent + pool.RowAt(side, 0, slot % pool.block_tokens);
      for (int32_t head = 0; head < pool.num_kv_heads; ++head) {
        StoreRow(x, pool, side, out);
        x += pool.head_dim;
        out += pool.block_tokens * pool.RowBytes(side);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::cpu {

HWY_EXPORT(StoreTokens);
HWY_EXPORT(QuantiseRow);

void QuantiseRow(const float* x, int32_t head_dim, int32_t bits, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(QuantiseRow)(x, head_dim, bits, out);
}

namespace {

// Cuts the two lists of slots into the longest pieces whose slots follow one another in one block,
// in both lists, and calls body(i, n) for each: its first index and its length.
template <class Body>
void ForSlotRuns(std::span<const int32_t> from, std::span<const int32_t> to, int32_t block_tokens,
                 const Body& body) {
  const int32_t offset_bits = block_tokens - 1;
  for (size_t i = 0; i < to.size();) {
    const int32_t offset = std::max(from[i] & offset_bits, to[i] & offset_bits);
    const auto most = static_cast<int32_t>(
        std::min<size_t>(static_cast<size_t>(block_tokens - offset), to.size() - i));
    int32_t n = 1;
    while (n < most && from[i + static_cast<size_t>(n)] == from[i] + n &&
           to[i + static_cast<size_t>(n)] == to[i] + n) {
      ++n;
    }
    body(i, static_cast<size_t>(n));
    i += static_cast<size_t>(n);
  }
}

}  // namespace

absl::Status CpuOps::DoStoreKv(Stream&, const StoreKvArgs& args) {
  const auto tokens = &HWY_DYNAMIC_DISPATCH(StoreTokens);
  ForRows(pool_, args.k.rows(), 2 * args.k.RowElements(),
          [&](int64_t begin, int64_t end) { tokens(args, begin, end); });
  return absl::OkStatus();
}

absl::Status CpuOps::DoCopyBlocks(Stream&, const CopyBlocksArgs& args) {
  const int64_t num_layers = args.pool.num_layers;
  const auto bytes = static_cast<size_t>(args.pool.ExtentBytes());
  const auto count = static_cast<int64_t>(args.pairs.size()) * num_layers;
  pool_.ParallelFor(count, [&](int64_t index, int) {
    const auto& [from, to] = args.pairs[static_cast<size_t>(index / num_layers)];
    const auto layer = static_cast<int32_t>(index % num_layers);
    std::memcpy(args.pool.Extent(layer, to), args.pool.Extent(layer, from), bytes);
  });
  return absl::OkStatus();
}

// A thread takes K or V of some heads of some layers. Any order of copies will do, since no slot is
// both read and written.
absl::Status CpuOps::DoCopyTokens(Stream&, const CopyTokensArgs& args) {
  const KvPoolView& kv = args.pool;
  const int64_t planes = 2 * int64_t{kv.num_kv_heads};  // K and V of each head of a layer
  const int shift = std::countr_zero(static_cast<uint32_t>(kv.block_tokens));
  ForRows(pool_, kv.num_layers * planes, std::ssize(args.to) * kv.head_dim,
          [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
              const auto layer = static_cast<int32_t>(i / planes);
              const auto plane = static_cast<int32_t>(i % planes);
              const KvSide side = plane < kv.num_kv_heads ? KvSide::kKeys : KvSide::kValues;
              const int32_t head = plane % kv.num_kv_heads;
              const auto row_bytes = static_cast<size_t>(kv.RowBytes(side));
              const auto from = args.FromIn(layer, head);
              const auto row_of = [&](int32_t slot) {
                const int32_t offset = slot & (kv.block_tokens - 1);
                return kv.Extent(layer, slot >> shift) + kv.RowAt(side, head, offset);
              };
              ForSlotRuns(from, args.to, kv.block_tokens, [&](size_t at, size_t n) {
                std::memcpy(row_of(args.to[at]), row_of(from[at]), n * row_bytes);
              });
            }
          });
  return absl::OkStatus();
}

absl::Status CpuOps::DoGatherBlocks(Stream&, const MoveBlocksArgs& args) {
  const auto bytes = static_cast<size_t>(args.pool.ExtentBytes());
  pool_.ParallelFor(static_cast<int64_t>(args.items.size()), [&](int64_t index, int) {
    const auto i = static_cast<size_t>(index);
    const LayerBlock& item = args.items[i];
    std::memcpy(args.staging.data() + i * bytes, args.pool.Extent(item.layer, item.block), bytes);
  });
  return absl::OkStatus();
}

absl::Status CpuOps::DoScatterBlocks(Stream&, const MoveBlocksArgs& args) {
  const auto bytes = static_cast<size_t>(args.pool.ExtentBytes());
  pool_.ParallelFor(static_cast<int64_t>(args.items.size()), [&](int64_t index, int) {
    const auto i = static_cast<size_t>(index);
    const LayerBlock& item = args.items[i];
    std::memcpy(args.pool.Extent(item.layer, item.block), args.staging.data() + i * bytes, bytes);
  });
  return absl::OkStatus();
}

}  // namespace tandem::cpu
#endif  // HWY_ONCE
