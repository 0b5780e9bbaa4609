#pragma once

// Wrappers of the warpgroup matrix products, which only sm_90a has. Included by ptx.cuh. A kernel
// that uses these does not compile for another architecture.
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

#include <cstdint>
#include <type_traits>

namespace tandem::ptx {

// ---- warpgroup products: d[64xN] += a[64x16] * b[16xN], under way until waited for ----

// Orders register accesses with products: comes before the first product, and after writes to
// registers that a product reads or accumulates into. Warpgroup. wgmma.fence
__device__ __forceinline__ void WgmmaFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// Closes the group of products started since the last commit. Warpgroup. wgmma.commit_group
__device__ __forceinline__ void WgmmaCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most N of the newest groups of products are under way. Until a group has ended,
// its d must not be read, nor the shared memory that it reads be overwritten. Warpgroup.
// wgmma.wait_group
template <int N>
__device__ __forceinline__ void WgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

// Keeps the compiler from moving uses of registers across this point. Comes before and after a
// group of products whose accumulators other code touches. Lane. No instruction
template <int N>
__device__ __forceinline__ void WgmmaFenceOperands(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// Where an operand lies in shared memory, in core matrices of 8 rows of 16 bytes. Lane.
// K-major (rows along M or N, 16-bit elements along K): without swizzle a core matrix is 128 bytes
// in a row, `leading_bytes` lead to the next along K, `stride_bytes` to the next 8 rows; with a
// swizzle of S bytes, rows of S bytes lie 8 in a group, `stride_bytes` from group to group
// (leading_bytes unused), and a K-step of 16 elements is start + 32 bytes.
// MN-major (trans_b 1: rows along K, elements along N): with a swizzle of S bytes `leading_bytes`
// lead to the next S/2 columns and `stride_bytes` to the next 8 rows of K; without, `leading_bytes`
// lead to the next 8 of K and `stride_bytes` to the next 8 columns.
// swizzle: 0 none, 1 128 bytes, 2 64 bytes, 3 32 bytes; chunk c of row r is then at c ^ (r % 8),
// c ^ (r / 2 % 4), c ^ (r / 4 % 2): groups are aligned to 1024, 512, 256 bytes.
__device__ __forceinline__ uint64_t WgmmaDescriptor(const void* smem, int leading_bytes,
                                                    int stride_bytes, int swizzle) {
  const uint64_t start = (SharedAddress(smem) & 0x3ffffu) >> 4;
  const uint64_t leading = (static_cast<uint32_t>(leading_bytes) & 0x3ffffu) >> 4;
  const uint64_t stride = (static_cast<uint32_t>(stride_bytes) & 0x3ffffu) >> 4;
  return start | (leading << 16) | (stride << 32) | (static_cast<uint64_t>(swizzle) << 62);
}

// Operand lists of the asm statements below, written once for all shapes.
#define TANDEM_D8(d, i)                                                                       \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define TANDEM_D32(d, i) \
  TANDEM_D8(d, i), TANDEM_D8(d, i + 8), TANDEM_D8(d, i + 16), TANDEM_D8(d, i + 24)
#define TANDEM_D64(d, i) TANDEM_D32(d, i), TANDEM_D32(d, i + 32)
#define TANDEM_D128(d, i) TANDEM_D64(d, i), TANDEM_D64(d, i + 64)

#define TANDEM_REGISTERS32                                                 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TANDEM_REGISTERS64                                                           \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define TANDEM_REGISTERS128                                                                      \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                       \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "             \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "             \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "             \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "             \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

#define TANDEM_WGMMA_SS_N64(type)                                                         \
  asm volatile(                                                                           \
      "{.reg .pred p;\n setp.ne.b32 p, %34, 0;\n"                                         \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" TANDEM_REGISTERS32 \
      "}, %32, %33, p, 1, 1, 0, %35;}"                                                    \
      : TANDEM_D32(d, 0)                                                                  \
      : "l"(a_desc), "l"(b_desc), "r"(scale_d), "n"(TransB))
#define TANDEM_WGMMA_RS_N64(type)                                                         \
  asm volatile(                                                                           \
      "{.reg .pred p;\n setp.ne.b32 p, %37, 0;\n"                                         \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" TANDEM_REGISTERS32 \
      "}, {%32, %33, %34, %35}, %36, p, 1, 1, %38;}"                                      \
      : TANDEM_D32(d, 0)                                                                  \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_desc), "r"(scale_d), "n"(TransB))

#define TANDEM_WGMMA_SS_N128(type)                                                         \
  asm volatile(                                                                            \
      "{.reg .pred p;\n setp.ne.b32 p, %66, 0;\n"                                          \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" TANDEM_REGISTERS64 \
      "}, %64, %65, p, 1, 1, 0, %67;}"                                                     \
      : TANDEM_D64(d, 0)                                                                   \
      : "l"(a_desc), "l"(b_desc), "r"(scale_d), "n"(TransB))
#define TANDEM_WGMMA_RS_N128(type)                                                         \
  asm volatile(                                                                            \
      "{.reg .pred p;\n setp.ne.b32 p, %69, 0;\n"                                          \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" TANDEM_REGISTERS64 \
      "}, {%64, %65, %66, %67}, %68, p, 1, 1, %70;}"                                       \
      : TANDEM_D64(d, 0)                                                                   \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_desc), "r"(scale_d), "n"(TransB))

#define TANDEM_WGMMA_SS_N256(type)                                                          \
  asm volatile(                                                                             \
      "{.reg .pred p;\n setp.ne.b32 p, %130, 0;\n"                                          \
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type " {" TANDEM_REGISTERS128 \
      "}, %128, %129, p, 1, 1, 0, %131;}"                                                   \
      : TANDEM_D128(d, 0)                                                                   \
      : "l"(a_desc), "l"(b_desc), "r"(scale_d), "n"(TransB))
#define TANDEM_WGMMA_RS_N256(type)                                                          \
  asm volatile(                                                                             \
      "{.reg .pred p;\n setp.ne.b32 p, %133, 0;\n"                                          \
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type " {" TANDEM_REGISTERS128 \
      "}, {%128, %129, %130, %131}, %132, p, 1, 1, %134;}"                                  \
      : TANDEM_D128(d, 0)                                                                   \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_desc), "r"(scale_d), "n"(TransB))

#define TANDEM_WGMMA_BY_TYPE(product)                        \
  if constexpr (std::is_same_v<Type, Bf16>) {                \
    product("bf16");                                         \
  } else {                                                   \
    static_assert(std::is_same_v<Type, F16>, "Bf16 or F16"); \
    product("f16");                                          \
  }

// d += a * b with A and B in shared memory, A K-major. scale_d 0: d is overwritten instead of added
// to. The fragment: warp w of the group has the rows 16w to 16w+15, and d[4j..4j+3] is the
// accumulator of mma.m16n8k16 for the columns 8j to 8j+7. Warpgroup. wgmma.mma_async.m64nNk16
template <class Type, int N, int TransB>
__device__ __forceinline__ void WgmmaSS(float (&d)[N / 2], uint64_t a_desc, uint64_t b_desc,
                                        int scale_d) {
  static_assert(N == 64 || N == 128 || N == 256, "a shape that is not spelled out here");
  if constexpr (N == 64) {
    TANDEM_WGMMA_BY_TYPE(TANDEM_WGMMA_SS_N64)
  } else if constexpr (N == 128) {
    TANDEM_WGMMA_BY_TYPE(TANDEM_WGMMA_SS_N128)
  } else {
    TANDEM_WGMMA_BY_TYPE(TANDEM_WGMMA_SS_N256)
  }
}

// d += a * b as WgmmaSS, but with A in registers: each warp's 16 rows as the A fragment of
// mma.m16n8k16. Warpgroup. wgmma.mma_async.m64nNk16
template <class Type, int N, int TransB>
__device__ __forceinline__ void WgmmaRS(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b_desc,
                                        int scale_d) {
  static_assert(N == 64 || N == 128 || N == 256, "a shape that is not spelled out here");
  if constexpr (N == 64) {
    TANDEM_WGMMA_BY_TYPE(TANDEM_WGMMA_RS_N64)
  } else if constexpr (N == 128) {
    TANDEM_WGMMA_BY_TYPE(TANDEM_WGMMA_RS_N128)
  } else {
    TANDEM_WGMMA_BY_TYPE(TANDEM_WGMMA_RS_N256)
  }
}

#undef TANDEM_D8
#undef TANDEM_D32
#undef TANDEM_D64
#undef TANDEM_D128
#undef TANDEM_REGISTERS32
#undef TANDEM_REGISTERS64
#undef TANDEM_REGISTERS128
#undef TANDEM_WGMMA_SS_N64
#undef TANDEM_WGMMA_SS_N128
#undef TANDEM_WGMMA_SS_N256
#undef TANDEM_WGMMA_RS_N64
#undef TANDEM_WGMMA_RS_N128
#undef TANDEM_WGMMA_RS_N256
#undef TANDEM_WGMMA_BY_TYPE

}  // namespace tandem::ptx

#endif
