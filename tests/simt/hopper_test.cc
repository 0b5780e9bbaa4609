// The instructions of sm_90a: warpgroup products, barriers in shared memory, named barriers.
#include <cuda_runtime.h>

#include <cmath>
#include <random>

#include "gtest/gtest.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"
#include "tests/simt/device_buffer.h"
#include "tests/simt/simt.h"

namespace simt {
namespace {

using tandem::Launch;
namespace ptx = tandem::ptx;

constexpr int kDepth = 64;  // of the products here: four instructions
constexpr int kA = 64 * kDepth;

// How an operand [rows, kDepth] lies in shared memory, written from the definition of its layout.
struct Placement {
  int swizzle;  // as in the descriptor
  bool mn_major;
  int rows;
};

int SwizzleBytes(int swizzle) {
  constexpr int kBytes[] = {16, 128, 64, 32};
  return kBytes[swizzle];
}

// Bytes from the start of the operand to element (row, k). K-major: panels of swizzle bytes along
// k, each all rows deep; MN-major: panels of swizzle bytes along the rows, each all of k deep.
__host__ __device__ int HandleOf(const Placement& p, int row, int k) {
  constexpr int kBytes[] = {16, 128, 64, 32};
  const int bytes = kBytes[p.swizzle];
  const int along = p.mn_major ? row : k;
  const int across = p.mn_major ? k : row;
  const int depth = p.mn_major ? kDepth : p.rows;
  const int panel = along * 2 / bytes;
  const int offset = panel * depth * bytes + across * bytes + along * 2 % bytes;
  const int mask = bytes / 16 - 1;
  return offset ^ ((offset >> 7 & mask) << 4);
}

// Descriptor of the operand's part that starts at k.
__device__ uint64_t DescriptorAt(const unsigned char* operand, const Placement& p, int k) {
  constexpr int kBytes[] = {16, 128, 64, 32};
  const int bytes = kBytes[p.swizzle];
  if (p.mn_major) {
    const int panel = kDepth * bytes;
    const unsigned char* start = operand + k * bytes;
    return p.swizzle == 0 ? ptx::WgmmaDescriptor(start, 8 * bytes, panel, 0)
                          : ptx::WgmmaDescriptor(start, panel, 8 * bytes, p.swizzle);
  }
  const int panel = p.rows * bytes;
  const unsigned char* start = operand + k * 2 / bytes * panel + k * 2 % bytes;
  return ptx::WgmmaDescriptor(start, panel, 8 * bytes, p.swizzle);
}

struct ProductParams {
  float* d;
  const uint16_t* a;  // [64, kDepth]
  const uint16_t* b;  // [n, kDepth]
  Placement a_place;
  Placement b_place;
};

template <int N, int TransB, bool kRegistersA>
__global__ void Product(ProductParams p) {
  auto* smem = ptx::DynamicShared<unsigned char>();
  unsigned char* smem_b = smem + kA * 2;
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < kA; i += 128) {
    *reinterpret_cast<uint16_t*>(smem + HandleOf(p.a_place, i / kDepth, i % kDepth)) = p.a[i];
  }
  for (int i = thread; i < N * kDepth; i += 128) {
    *reinterpret_cast<uint16_t*>(smem_b + HandleOf(p.b_place, i / kDepth, i % kDepth)) = p.b[i];
  }
  ptx::FenceProxyAsync();
  __syncthreads();
  float d[N / 2];
  ptx::WgmmaFence();
  for (int k = 0; k < kDepth; k += 16) {
    const uint64_t b_desc = DescriptorAt(smem_b, p.b_place, k);
    if constexpr (kRegistersA) {
      uint32_t a[4];
      const int row = thread / 32 * 16 + thread % 32 / 4;
      for (int i = 0; i < 4; ++i) {
        const uint16_t* at = p.a + (row + i % 2 * 8) * kDepth + k + thread % 4 * 2 + i / 2 * 8;
        a[i] = at[0] | static_cast<uint32_t>(at[1]) << 16;
      }
      ptx::WgmmaRS<ptx::Bf16, N, TransB>(d, a, b_desc, k > 0);
    } else {
      ptx::WgmmaSS<ptx::Bf16, N, TransB>(d, DescriptorAt(smem, p.a_place, k), b_desc, k > 0);
    }
  }
  ptx::WgmmaCommit();
  ptx::WgmmaWait<0>();
  for (int i = 0; i < N / 2; ++i) {
    const int row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
    p.d[row * N + i / 4 * 8 + thread % 4 * 2 + i % 2] = d[i];
  }
}

template <int N, int TransB, bool kRegistersA>
void CheckProduct(int swizzle) {
  std::mt19937 random(N + swizzle);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> a(kA);
  std::vector<uint16_t> b(N * kDepth);
  for (uint16_t& x : a) x = ToBf16(normal(random));
  for (uint16_t& x : b) x = ToBf16(normal(random));
  DeviceArray<uint16_t> device_a(a);
  DeviceArray<uint16_t> device_b(b);
  DeviceArray<float> d(64 * N);
  const ProductParams params{
      d.get(), device_a.get(), device_b.get(), {swizzle, false, 64}, {swizzle, TransB == 1, N}};
  ASSERT_EQ(Launch(Product<N, TransB, kRegistersA>,
                   {dim3(1), dim3(128), static_cast<size_t>(kA + N * kDepth) * 2}, nullptr, params),
            cudaSuccess);
  const std::vector<float> result = d.Read();
  for (int row = 0; row < 64; ++row) {
    for (int column = 0; column < N; ++column) {
      double sum = 0;
      for (int k = 0; k < kDepth; ++k) {
        sum += double{FromBf16(a[row * kDepth + k])} * FromBf16(b[column * kDepth + k]);
      }
      ASSERT_NEAR(result[row * N + column], sum, 1e-3)
          << row << " " << column << " swizzle " << SwizzleBytes(swizzle);
    }
  }
}

TEST(Wgmma, EveryLayoutAgainstAPlainProduct) {
  for (int swizzle = 0; swizzle < 4; ++swizzle) {
    SetSeed(static_cast<uint64_t>(swizzle));
    CheckProduct<64, 0, false>(swizzle);
    CheckProduct<128, 0, true>(swizzle);
    CheckProduct<256, 0, false>(swizzle);
    CheckProduct<64, 1, false>(swizzle);
    CheckProduct<128, 1, true>(swizzle);
    CheckProduct<256, 1, false>(swizzle);
  }
}

// Reads its accumulators before the wait, or overwrites the operands before it.
template <bool kReadEarly, bool kOverwrite>
__global__ void Hasty(float* out) {
  auto* smem = ptx::DynamicShared<uint16_t>();
  for (int i = static_cast<int>(threadIdx.x); i < 2 * 64 * 16; i += 128) smem[i] = ToBf16(1.0f);
  ptx::FenceProxyAsync();
  __syncthreads();
  float d[32] = {};
  ptx::WgmmaFence();
  ptx::WgmmaSS<ptx::Bf16, 64, 0>(d, ptx::WgmmaDescriptor(smem, 1024, 128, 0),
                                 ptx::WgmmaDescriptor(smem + 64 * 16, 1024, 128, 0), 1);
  ptx::WgmmaCommit();
  float sum = 0;
  if constexpr (kReadEarly) sum = d[0];
  if constexpr (kOverwrite) {
    for (int i = static_cast<int>(threadIdx.x); i < 64 * 16; i += 128) smem[i] = 0;
  }
  ptx::WgmmaWait<0>();
  if constexpr (!kReadEarly) sum = d[0];
  out[threadIdx.x] = sum;
}

int WrongOf20(void (*kernel)(float*)) {
  int wrong = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SetSeed(seed);
    DeviceArray<float> out(128);
    EXPECT_EQ(Launch(kernel, {dim3(1), dim3(128), 4096}, nullptr, out.get()), cudaSuccess);
    bool right = true;
    for (float sum : out.Read()) right = right && sum == 16.0f;
    wrong += right ? 0 : 1;
  }
  return wrong;
}

TEST(Wgmma, WhatIsDoneBeforeTheWaitShows) {
  EXPECT_EQ(WrongOf20(Hasty<false, false>), 0);
  EXPECT_EQ(WrongOf20(Hasty<true, false>), 20);
  EXPECT_GT(WrongOf20(Hasty<false, true>), 3);
}

// A producer warp fills a ring of slots by cp.async, three consumer warps add them up.
constexpr int kSlots = 2;
constexpr int kSteps = 9;

__global__ void Ring(float* out, const float* in) {
  auto* bars = ptx::DynamicShared<uint64_t>();
  auto* ring = reinterpret_cast<float*>(bars + 2 * kSlots);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kSlots; ++i) {
      ptx::MbarrierInit(bars + i, 32);
      ptx::MbarrierInit(bars + kSlots + i, 96);
    }
    ptx::FenceBarrierInit();
  }
  __syncthreads();
  float sum = 0;
  for (int step = 0; step < kSteps; ++step) {
    const int slot = step % kSlots;
    const uint32_t round = static_cast<uint32_t>(step / kSlots);
    if (warp == 0) {
      ptx::MbarrierWait(bars + kSlots + slot, (round & 1) ^ 1);
      ptx::CpAsync16(ring + slot * 128 + lane * 4, in + step * 128 + lane * 4);
      ptx::CpAsyncCommit();
      ptx::CpAsyncWait<0>();
      ptx::MbarrierArrive(bars + slot);
    } else {
      ptx::MbarrierWait(bars + slot, round & 1);
      for (int i = 0; i < 4; ++i) sum += ring[slot * 128 + i * 32 + lane];
      ptx::MbarrierArrive(bars + kSlots + slot);
    }
  }
  if (warp > 0) {
    ptx::NamedBarrierSync(1, 96);
    out[threadIdx.x - 32] = sum;
  }
}

TEST(Mbarrier, ARingOfAProducerAndConsumers) {
  std::vector<float> values(kSteps * 128);
  float expected[32] = {};
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i % 97);
    expected[i % 32] += values[i];
  }
  DeviceArray<float> in(values);
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SetSeed(seed);
    DeviceArray<float> out(96);
    ASSERT_EQ(Launch(Ring, {dim3(1), dim3(128), 8 * 2 * kSlots + 512 * kSlots}, nullptr, out.get(),
                     in.get()),
              cudaSuccess);
    const std::vector<float> sums = out.Read();
    for (int i = 0; i < 96; ++i) EXPECT_EQ(sums[i], expected[i % 32]);
  }
}

__global__ void SomeWarpsGiveRegisters() {
  if (threadIdx.x < 64) ptx::SetMaxRegistersDec<40>();
}
__global__ void Unfenced(float* out) {
  float d[32] = {};
  ptx::WgmmaSS<ptx::Bf16, 64, 0>(d, 0, 0, 0);
  out[0] = d[0];
}
__global__ void ForgottenInit() { ptx::MbarrierWait(ptx::DynamicShared<uint64_t>(), 0); }
__global__ void NeverFilled() {
  auto* bar = ptx::DynamicShared<uint64_t>();
  if (threadIdx.x == 0) {
    ptx::MbarrierInit(bar, 2);
    ptx::MbarrierArrive(bar);
  }
  __syncthreads();
  ptx::MbarrierWait(bar, 0);
}

TEST(HopperDeathTest, Misuse) {
  EXPECT_DEATH(Launch(SomeWarpsGiveRegisters, {dim3(1), dim3(128)}, nullptr), "deadlock.*\n.*set");
  EXPECT_DEATH(Launch(Unfenced, {dim3(1), dim3(128), 8192}, nullptr, nullptr), "wgmma.fence");
  EXPECT_DEATH(Launch(ForgottenInit, {dim3(1), dim3(32), 64}, nullptr), "no mbarrier");
  EXPECT_DEATH(Launch(NeverFilled, {dim3(1), dim3(32), 64}, nullptr), "deadlock.*\n.*mbarrier");
}

}  // namespace
}  // namespace simt
