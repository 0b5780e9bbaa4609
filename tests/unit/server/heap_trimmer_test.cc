#include "server/commands/heap_trimmer.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/process_use.h"
#include "tests/support/sanitized.h"

namespace tandem::heap_trimmer_test {
namespace {

constexpr size_t kBlockBytes = 32 << 10;
constexpr size_t kBlocks = 4096;  // 128 MiB
constexpr int64_t kAllKib = kBlocks * kBlockBytes >> 10;

// Written to, so that it is resident.
std::vector<std::unique_ptr<char[]>> Blocks() {
  std::vector<std::unique_ptr<char[]>> blocks;
  for (size_t i = 0; i < kBlocks; ++i) {
    blocks.push_back(std::make_unique<char[]>(kBlockBytes));
    std::fill_n(blocks.back().get(), kBlockBytes, 'x');
  }
  return blocks;
}

TEST(HeapTrimmerTest, WhatWasUsedForAMomentIsGivenBack) {
  if (kIsSanitized) GTEST_SKIP() << "the sanitizer has a heap of its own";
  HeapTrimmer heap;
  EXPECT_FALSE(heap.TrimIfMuchIsFree());
  std::vector<std::unique_ptr<char[]>> blocks = Blocks();
  EXPECT_FALSE(heap.TrimIfMuchIsFree()) << "all of it is in use";
  const int64_t before = ResidentKib(getpid());
  // The last one stays, so that the C library gives nothing back by itself.
  blocks.erase(blocks.begin(), blocks.end() - 1);
  EXPECT_GT(ResidentKib(getpid()), before - kAllKib / 4) << "the C library keeps it";
  EXPECT_TRUE(heap.TrimIfMuchIsFree());
  EXPECT_LT(ResidentKib(getpid()), before - kAllKib * 3 / 4);
  EXPECT_FALSE(heap.TrimIfMuchIsFree()) << "nothing is left to give back";
}

}  // namespace
}  // namespace tandem::heap_trimmer_test
