// Warp collectives against what the PTX ISA says of them.
#include <cuda_runtime.h>

#include <cmath>
#include <random>

#include "gtest/gtest.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"
#include "tests/simt/device_buffer.h"

namespace simt {
namespace {

using tandem::Launch;
using tandem::LaunchShape;
namespace ptx = tandem::ptx;

std::vector<uint16_t> RandomBf16(size_t size, int seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> values(size);
  for (uint16_t& value : values) value = ToBf16(normal(random));
  return values;
}

__global__ void Shuffles(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  int* row = out + lane * 8;
  row[0] = __shfl_sync(0xffffffffu, lane, 5);
  row[1] = __shfl_xor_sync(0xffffffffu, lane, 16);
  row[2] = __shfl_up_sync(0xffffffffu, lane, 3);
  row[3] = __shfl_down_sync(0xffffffffu, lane, 3);
  row[4] = __shfl_sync(0xffffffffu, lane, 1, 8);
  row[5] = __shfl_down_sync(0xffffffffu, lane, 2, 4);
  row[6] = static_cast<int>(__ballot_sync(0xffffffffu, lane % 2));
  row[7] = __any_sync(0xffffffffu, lane == 9) + 2 * __all_sync(0xffffffffu, lane >= 0);
}

TEST(Warp, ShufflesAndVotes) {
  DeviceArray<int> out(32 * 8);
  ASSERT_EQ(Launch(Shuffles, {dim3(1), dim3(32)}, nullptr, out.get()), cudaSuccess);
  const std::vector<int> rows = out.Read();
  for (int lane = 0; lane < 32; ++lane) {
    const int* row = &rows[lane * 8];
    EXPECT_EQ(row[0], 5);
    EXPECT_EQ(row[1], lane ^ 16);
    EXPECT_EQ(row[2], lane < 3 ? lane : lane - 3);
    EXPECT_EQ(row[3], lane > 28 ? lane : lane + 3);
    EXPECT_EQ(row[4], lane / 8 * 8 + 1);
    EXPECT_EQ(row[5], lane % 4 < 2 ? lane + 2 : lane);
    EXPECT_EQ(static_cast<unsigned>(row[6]), 0xaaaaaaaau);
    EXPECT_EQ(row[7], 3);
  }
}

// Half warps may each have a collective of their own.
__global__ void HalfWarps(float* out) {
  const unsigned mask = threadIdx.x < 16 ? 0x0000ffffu : 0xffff0000u;
  float sum = static_cast<float>(threadIdx.x);
  for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(mask, sum, step);
  out[threadIdx.x] = sum;
}

TEST(Warp, DisjointMasksAreIndependent) {
  DeviceArray<float> out(32);
  ASSERT_EQ(Launch(HalfWarps, {dim3(1), dim3(32)}, nullptr, out.get()), cudaSuccess);
  const std::vector<float> sums = out.Read();
  for (int lane = 0; lane < 32; ++lane) EXPECT_EQ(sums[lane], lane < 16 ? 120.0f : 376.0f);
}

// c[16x8] = a[16x16] b[16x8], b stored by k, through shared memory and ldmatrix.
template <bool kTransposedB>
__global__ void MmaTile(float* c, const uint16_t* a, const uint16_t* b) {
  auto* smem = ptx::DynamicShared<uint16_t>();
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 32; i += 32) ptx::CpAsync16(smem + i * 8, a + i * 8);
  if (lane < 16) ptx::CpAsync16(smem + 256 + lane * 8, b + lane * 8);
  ptx::CpAsyncCommit();
  ptx::CpAsyncWait<0>();
  __syncwarp();
  uint32_t fragment[4];
  uint32_t column[4];  // of which two count
  ptx::LdMatrixX4(fragment, smem + (lane % 16) * 16 + lane / 16 * 8);
  if constexpr (kTransposedB) {
    ptx::LdMatrixX4Trans(column, smem + 256 + (lane % 16) * 8);  // b[k][n]
  } else {
    ptx::LdMatrixX4(column, smem + 256 + (lane % 8) * 16 + lane / 8 % 2 * 8);  // b[n][k]
  }
  float d[4] = {};
  ptx::MmaBf16(d, fragment, column[0], column[1]);
  float* row = c + lane / 4 * 8 + lane % 4 * 2;
  row[0] = d[0];
  row[1] = d[1];
  row[64] = d[2];
  row[65] = d[3];
}

TEST(Warp, LdMatrixAndMmaMakeAProduct) {
  const std::vector<uint16_t> a = RandomBf16(256, 1);
  const std::vector<uint16_t> b = RandomBf16(128, 2);
  DeviceArray<uint16_t> device_a(a);
  DeviceArray<uint16_t> device_b(b);
  for (const bool transposed : {false, true}) {
    DeviceArray<float> c(128);
    const LaunchShape shape{dim3(1), dim3(32), 768};
    ASSERT_EQ(transposed
                  ? Launch(MmaTile<true>, shape, nullptr, c.get(), device_a.get(), device_b.get())
                  : Launch(MmaTile<false>, shape, nullptr, c.get(), device_a.get(), device_b.get()),
              cudaSuccess);
    const std::vector<float> result = c.Read();
    for (int m = 0; m < 16; ++m) {
      for (int n = 0; n < 8; ++n) {
        double sum = 0;
        for (int k = 0; k < 16; ++k) {
          sum +=
              double{FromBf16(a[m * 16 + k])} * FromBf16(transposed ? b[k * 8 + n] : b[n * 16 + k]);
        }
        EXPECT_NEAR(result[m * 8 + n], sum, 1e-4) << m << " " << n << " " << transposed;
      }
    }
  }
}

__global__ void LoadFour(uint32_t* out, const uint16_t* in) {
  auto* smem = ptx::DynamicShared<uint16_t>();
  for (int i = 0; i < 8; ++i) smem[threadIdx.x * 8 + i] = in[threadIdx.x * 8 + i];
  __syncthreads();
  uint32_t r[4];
  uint32_t t[4];
  ptx::LdMatrixX4(r, smem + threadIdx.x * 8);
  ptx::LdMatrixX4Trans(t, smem + threadIdx.x * 8);
  for (int i = 0; i < 4; ++i) {
    out[threadIdx.x * 8 + i] = r[i];
    out[threadIdx.x * 8 + 4 + i] = t[i];
  }
}

TEST(Warp, EveryLaneOfLdMatrix) {
  std::vector<uint16_t> in(256);
  for (int i = 0; i < 256; ++i)
    in[i] = static_cast<uint16_t>(i);  // matrix, row, column: 2 + 3 + 3 bits
  DeviceArray<uint16_t> device_in(in);
  DeviceArray<uint32_t> out(32 * 8);
  ASSERT_EQ(Launch(LoadFour, {dim3(1), dim3(32), 512}, nullptr, out.get(), device_in.get()),
            cudaSuccess);
  const std::vector<uint32_t> result = out.Read();
  for (uint32_t lane = 0; lane < 32; ++lane) {
    for (uint32_t m = 0; m < 4; ++m) {
      const uint32_t row = lane / 4;
      const uint32_t column = lane % 4 * 2;
      const uint32_t plain = m * 64 + row * 8 + column;
      EXPECT_EQ(result[lane * 8 + m], plain | (plain + 1) << 16);
      const uint32_t transposed = m * 64 + column * 8 + row;
      EXPECT_EQ(result[lane * 8 + 4 + m], transposed | (transposed + 8) << 16);
    }
  }
}

__global__ void ReadEarly(float* out, const float* in) {
  auto* smem = ptx::DynamicShared<float>();
  smem[threadIdx.x * 4] = 1.0f;
  ptx::CpAsync16(smem + threadIdx.x * 4, in + threadIdx.x * 4);
  ptx::CpAsyncCommit();
  ptx::CpAsync16Zfill(smem + 128 + threadIdx.x * 4, in, false);
  ptx::CpAsyncCommit();
  float* mine = out + threadIdx.x * 4;
  mine[0] = smem[threadIdx.x * 4];
  ptx::CpAsyncWait<1>();
  mine[1] = smem[threadIdx.x * 4];
  mine[2] = smem[128 + threadIdx.x * 4];
  ptx::CpAsyncWait<0>();
  mine[3] = smem[128 + threadIdx.x * 4];
}

TEST(Warp, CopiesLandAtTheirWaitAndNotBefore) {
  DeviceArray<float> in(std::vector<float>(128, 7.0f));
  DeviceArray<float> out(128);
  ASSERT_EQ(Launch(ReadEarly, {dim3(1), dim3(32), 1024}, nullptr, out.get(), in.get()),
            cudaSuccess);
  const std::vector<float> result = out.Read();
  for (int lane = 0; lane < 32; ++lane) {
    EXPECT_TRUE(std::isnan(result[lane * 4]));
    EXPECT_EQ(result[lane * 4 + 1], 7.0f);
    EXPECT_TRUE(std::isnan(result[lane * 4 + 2]));
    EXPECT_EQ(result[lane * 4 + 3], 0.0f);
  }
}

TEST(Floats, RoundToNearestEven) {
  EXPECT_EQ(ToBf16(1.0f + 0x1p-8f), 0x3f80);  // a tie, to even
  EXPECT_EQ(ToBf16(1.0f + 0x3p-8f), 0x3f82);
  EXPECT_EQ(ToF16(65519.0f), 0x7bff);
  EXPECT_EQ(ToF16(65520.0f), 0x7c00);
  EXPECT_EQ(ToF16(0x1p-25f), 0);
  EXPECT_EQ(ToF16(0x1.8p-25f), 1);
  EXPECT_EQ(ToE4m3(1e9f), 0x7e);
  EXPECT_EQ(ToE4m3(-0x1p-10f), 0x80);  // a tie between 0 and 2^-9
  EXPECT_EQ(ToE4m3(std::nanf("")), 0x7f);
  for (int i = 0; i < 0x10000; ++i) {
    const auto x = static_cast<uint16_t>(i);
    EXPECT_TRUE(std::isnan(FromF16(x)) || ToF16(FromF16(x)) == x) << i;
    EXPECT_TRUE(std::isnan(FromBf16(x)) || ToBf16(FromBf16(x)) == x) << i;
    const auto y = static_cast<uint8_t>(i);
    EXPECT_TRUE(std::isnan(FromE4m3(y)) || ToE4m3(FromE4m3(y)) == y) << i;
  }
}

// The software rounding that ptx.cuh uses below sm_89 agrees with a search over all codes.
TEST(Floats, E4m3IsTheNearest) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> exponent(-11.0f, 9.0f);
  for (int i = 0; i < 20000; ++i) {
    const float x = std::exp2(exponent(random));
    double best = 1e9;
    for (int code = 0; code < 0x7f; ++code) {
      best = std::min(best, std::abs(double{FromE4m3(static_cast<uint8_t>(code))} - x));
    }
    EXPECT_EQ(std::abs(double{FromE4m3(ToE4m3(x))} - x), best) << x;
  }
}

}  // namespace
}  // namespace simt
