#include "bench/ceilings.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/check.h"
#include "kernels/cpu/device.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/ceilings.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kChains = 12;  // more than latency times units, and all in registers on AVX2 as well

// Returns a value that depends on all sums, so that none of them can be left out.
float Multiply(int64_t rounds) {
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, 0.5f);
  // Each chain starts elsewhere: equal ones are one chain to a compiler.
  auto s0 = hn::Iota(d, 0), s1 = hn::Iota(d, 1), s2 = hn::Iota(d, 2), s3 = hn::Iota(d, 3);
  auto s4 = hn::Iota(d, 4), s5 = hn::Iota(d, 5), s6 = hn::Iota(d, 6), s7 = hn::Iota(d, 7);
  auto s8 = hn::Iota(d, 8), s9 = hn::Iota(d, 9), s10 = hn::Iota(d, 10), s11 = hn::Iota(d, 11);
  for (int64_t i = 0; i < rounds; ++i) {
    s0 = hn::MulAdd(s0, factor, factor);
    s1 = hn::MulAdd(s1, factor, factor);
    s2 = hn::MulAdd(s2, factor, factor);
    s3 = hn::MulAdd(s3, factor, factor);
    s4 = hn::MulAdd(s4, factor, factor);
    s5 = hn::MulAdd(s5, factor, factor);
    s6 = hn::MulAdd(s6, factor, factor);
    s7 = hn::MulAdd(s7, factor, factor);
    s8 = hn::MulAdd(s8, factor, factor);
    s9 = hn::MulAdd(s9, factor, factor);
    s10 = hn::MulAdd(s10, factor, factor);
    s11 = hn::MulAdd(s11, factor, factor);
  }
  const auto sum =
      hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), hn::Add(hn::Add(s4, s5), hn::Add(s6, s7)));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(sum, hn::Add(hn::Add(s8, s9), hn::Add(s10, s11)))));
}

double FlopsPerRound() {
  return 2.0 * kChains * static_cast<double>(hn::Lanes(hn::ScalableTag<float>()));
}

// Fetches from far into L2 and from near into L1, which reads faster here than the hardware's own
// fetching: a ceiling has to be one.
float Read(const std::byte* data, int64_t bytes) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum = hn::Zero(d);
  for (const std::byte* line = data; line < data + bytes; line += 64) {
    __builtin_prefetch(line + 16384, 0, 2);
    __builtin_prefetch(line + 4096, 0, 3);
    for (int64_t i = 0; i < 16; i += lanes) {
      sum = hn::Add(sum, hn::LoadU(d, reinterpret_cast<const float*>(line) + i));
    }
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

}  // namespace tandem::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {

HWY_EXPORT(Multiply);
HWY_EXPORT(FlopsPerRound);
HWY_EXPORT(Read);

namespace {

constexpr int64_t kReadBytes = int64_t{1} << 30;

int NumThreads(int num_threads) {
  return num_threads > 0 ? num_threads : static_cast<int>(std::thread::hardware_concurrency());
}

double SecondsOf(absl::FunctionRef<void()> work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void Keep(float value) { asm volatile("" : : "r,m"(value) : "memory"); }

}  // namespace

CeilingProbe::CeilingProbe(int num_threads) : pool_(NumThreads(num_threads)) {
  auto memory = NewCpuDevice()->Allocate(kReadBytes);
  TANDEM_CHECK(memory.ok(), memory.status().ToString());
  memory_ = *std::move(memory);
  std::memset(memory_.data(), 0, memory_.size());
}

double CeilingProbe::DramReadGbps() {
  const int64_t num_threads = pool_.num_threads();
  const int64_t part = kReadBytes / num_threads / 64 * 64;
  const double seconds = SecondsOf([&] {
    pool_.ParallelFor(num_threads, [&](int64_t i, int) {
      Keep(HWY_DYNAMIC_DISPATCH(Read)(memory_.data() + i * part, part));
    });
  });
  return static_cast<double>(part * num_threads) / seconds * 1e-9;
}

double CeilingProbe::FmaGflops() {
  constexpr int64_t kRounds = 500'000;
  const int64_t num_threads = pool_.num_threads();
  const double seconds = SecondsOf([&] {
    pool_.ParallelFor(num_threads,
                      [&](int64_t, int) { Keep(HWY_DYNAMIC_DISPATCH(Multiply)(kRounds)); });
  });
  const double flops = HWY_DYNAMIC_DISPATCH(FlopsPerRound)() * kRounds;
  return flops * static_cast<double>(num_threads) / seconds * 1e-9;
}

Ceilings MeasureCeilings(int num_threads) {
  CeilingProbe probe(num_threads);
  Ceilings best;
  for (int i = 0; i < 5; ++i) {
    best.dram_read_gbps = std::max(best.dram_read_gbps, probe.DramReadGbps());
    best.fma_gflops = std::max(best.fma_gflops, probe.FmaGflops());
  }
  return best;
}

}  // namespace tandem
#endif  // HWY_ONCE
