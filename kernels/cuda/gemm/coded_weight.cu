#include <algorithm>
#include <cfloat>
#include <cstdint>

#include "kernels/cuda/gemm/coded_weight.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/launchers.h"

// The kernels that make quantised weights, and that read them other than in a product of few rows.

namespace tandem::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kGroup = 32;  // inputs that share a scale, a lane for each
static_assert(kGroup == kCodeGroupInputs);

// The rows of a source to pack, and where its codes and scales go.
struct PackParams {
  const void* source;
  int64_t source_stride;
  const float* scales;  // [rows, groups of k] of a source of codes; else null
  uint8_t* codes;       // where those of the first row go
  uint16_t* packed_scales;
  int64_t k;
  int64_t row_codes;
  int64_t first_row;  // the place of the source's first row in the weight
  int32_t* bad_row;   // set to a row of the weight that has no codes
};

__device__ __forceinline__ float LargestOfWarp(float x) {
  for (int distance = 16; distance > 0; distance /= 2) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, distance));
  }
  return x;
}

struct Packed {
  uint8_t code;
  uint16_t scale;
  bool good;
};

// Quantises a float of a group, one in each lane: the same bits as kernels/cpu/quantise_panel.cc.
template <class T>
__device__ __forceinline__ Packed PackOne(T value, float, bool) {
  const float x = ToFloat(value);
  const bool finite = fabsf(x) <= FLT_MAX;  // false for a NaN
  const float largest = LargestOfWarp(finite ? fabsf(x) : 0.0f);
  const uint16_t bits = ptx::ToBf16(largest / kMaxInt8Code);
  const float scale = ptx::FromBf16(bits);
  const bool all_finite = __all_sync(0xffffffffu, finite) != 0;
  if (!all_finite || scale < FLT_MIN) return {0, 0, all_finite};
  const float scaled = x * (1.0f / scale);
  const int code = __float2int_rn(fminf(fmaxf(scaled, -kMaxInt8Code), kMaxInt8Code));
  return {static_cast<uint8_t>(code), bits, true};
}

template <>
__device__ __forceinline__ Packed PackOne(Int8 value, float scale, bool) {
  return {static_cast<uint8_t>(value.bits), ptx::ToBf16(scale), true};
}

template <>
__device__ __forceinline__ Packed PackOne(F8E4m3 value, float scale, bool present) {
  const bool is_number = (value.bits & 0x7f) != 0x7f || !present;
  return {value.bits, ptx::ToBf16(scale), is_number};
}

// A thread block packs one row, its warps the groups of inputs in turn.
template <class T>
__global__ void __launch_bounds__(kThreads) PackCodes(PackParams p) {
  ptx::GridDependencyLaunch();
  ptx::GridDependencyWait();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int64_t row = blockIdx.x;
  const int64_t num_groups = (p.k + kGroup - 1) / kGroup;
  const T* source = static_cast<const T*>(p.source) + row * p.source_stride;
  for (int64_t group = threadIdx.x / 32; group < p.row_codes / kGroup; group += kWarps) {
    const int64_t input = group * kGroup + lane;
    const bool present = input < p.k;
    const float scale =
        p.scales != nullptr && group < num_groups ? p.scales[row * num_groups + group] : 0.0f;
    const Packed packed = PackOne(present ? source[input] : T{}, scale, present);
    p.codes[row * p.row_codes + CodePlace(input)] = packed.code;
    if (lane == 0) p.packed_scales[row * (p.row_codes / kGroup) + group] = packed.scale;
    if (!packed.good) *p.bad_row = static_cast<int32_t>(p.first_row + row);
  }
}

constexpr int kPieceThreads = 128;
constexpr int kPieceInputs = kPieceThreads * kChunk;

struct ReadParams {
  CodedWeight weight;
  int64_t k;
  const int32_t* rows;  // rows of the weight, one for each row of out; null: from first_row on
  int64_t first_row;
};

// Reads rows of codes: each weight is its f32 product of scale and code, rounded to the type of
// out.
template <class Code, class Out, Access kAccess>
__global__ void __launch_bounds__(kPieceThreads) ReadRows(ReadParams p, Rows<Out> out) {
  ptx::GridDependencyLaunch();
  ptx::GridDependencyWait();
  const int64_t at = int64_t{blockIdx.y} * kPieceInputs + threadIdx.x * kChunk;
  if (at >= p.k) return;
  const int64_t row = p.rows != nullptr ? p.rows[blockIdx.x] : p.first_row + blockIdx.x;
  float x[kChunk];
  LoadCodes<Code>(p.weight, row, at, x);
  StoreChunk<kAccess>(x, out[blockIdx.x], at, p.k);
}

LaunchShape PiecesOf(int64_t rows, int64_t k) {
  return {.grid = dim3(static_cast<unsigned>(rows),
                       static_cast<unsigned>((k + kPieceInputs - 1) / kPieceInputs)),
          .block = dim3(kPieceThreads),
          .after_previous = true};
}

cudaError_t Read(const LaunchTarget& on, const PackedMatrix& weight, const ReadParams& params,
                 const TensorView& out) {
  const bool vectors = AccessOfRows(weight.k, {out}) == Access::kVectors;
  return WithCodeType(weight.format, [&](auto code) {
    using Code = decltype(code);
    return WithActivationType(out.dtype, [&](auto type) {
      using T = decltype(type);
      const auto kernel =
          vectors ? ReadRows<Code, T, Access::kVectors> : ReadRows<Code, T, Access::kElements>;
      return Launch(kernel, PiecesOf(out.rows(), weight.k), on.stream, params, RowsOf<T>(out));
    });
  });
}

}  // namespace

cudaError_t PackCodedRows(const LaunchTarget& on, const PackedMatrix& weight,
                          const CodedRows& rows) {
  const CodedWeight to = CodedWeightOf(weight);
  const int64_t scales = to.row_codes / kCodeGroupInputs;
  const PackParams params = {
      .source = rows.source.data,
      .source_stride = rows.source.row_stride,
      .scales = rows.scales,
      .codes = const_cast<uint8_t*>(to.codes) + rows.first_row * to.row_codes,
      .packed_scales = const_cast<uint16_t*>(to.scales) + rows.first_row * scales,
      .k = weight.k,
      .row_codes = to.row_codes,
      .first_row = rows.first_row,
      .bad_row = rows.bad_row};
  const LaunchShape shape = {.grid = dim3(static_cast<unsigned>(rows.source.rows())),
                             .block = dim3(kThreads),
                             .after_previous = true};
  if (rows.scales != nullptr) {
    return WithCodeType(weight.format, [&](auto code) {
      return Launch(PackCodes<decltype(code)>, shape, on.stream, params);
    });
  }
  return WithActivationType(rows.source.dtype, [&](auto type) {
    return Launch(PackCodes<decltype(type)>, shape, on.stream, params);
  });
}

cudaError_t WidenCodedRows(const LaunchTarget& on, const PackedMatrix& weight, int64_t first_row,
                           const TensorView& out) {
  return Read(
      on, weight,
      {.weight = CodedWeightOf(weight), .k = weight.k, .rows = nullptr, .first_row = first_row},
      out);
}

cudaError_t CodedEmbedding(const LaunchTarget& on, const EmbeddingArgs& args) {
  return Read(on, args.table,
              {.weight = CodedWeightOf(args.table),
               .k = args.table.k,
               .rows = args.token_ids.device(),
               .first_row = 0},
              args.out);
}

}  // namespace tandem::cuda
