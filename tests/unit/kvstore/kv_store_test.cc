#include "kvstore/kv_store.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/registry.h"

namespace tandem::kv_store_test {
namespace {

KvLayout Layout() {
  return {.num_layers = 3, .num_kv_heads = 2, .head_dim = 16, .block_tokens = 8};
}

class KvStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto backend = OpenBackend("cpu", {.num_threads = 1});
    ASSERT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
    auto stream = backend_.device->NewStream();
    ASSERT_TRUE(stream.ok()) << stream.status();
    stream_ = *std::move(stream);
  }

  auto Create(const KvLayout& layout, int32_t num_blocks, int64_t host_bytes = 0,
              CodecId host_codec = CodecId::kRaw) {
    return KvStore::Create({.layout = layout,
                            .num_blocks = num_blocks,
                            .host_bytes = host_bytes,
                            .host_codec = host_codec},
                           *backend_.device, *stream_, [] {});
  }

  absl::Status Copy(const KvStore& store, const BlockCopies& copies) {
    return backend_.ops->CopyBlocks(*stream_, {.pool = store.view(), .pairs = copies.pairs});
  }

  Backend backend_;
  std::unique_ptr<Stream> stream_;
};

// Pages of this process in memory, in bytes.
int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0;
  int64_t resident = 0;
  statm >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST_F(KvStoreTest, ExtentsTileThePool) {
  const auto store = *Create(Layout(), 4);
  BlockTable table(8);
  ASSERT_EQ(store->Reserve(table, 32), absl::OkStatus());
  const std::byte* expected = store->view().data;
  for (int32_t layer = 0; layer < 3; ++layer) {
    for (int32_t block = 0; block < 4; ++block) {
      const auto extent = store->Extent(layer, BlockId(block));
      EXPECT_EQ(extent.data(), expected);
      expected += extent.size();
    }
  }
  EXPECT_EQ(expected - store->view().data, 4 * Layout().BlockBytes());
}

TEST_F(KvStoreTest, CopiesAllLayersAndCountsThem) {
  const auto store = *Create(Layout(), 4);
  BlockTable table(8);
  ASSERT_EQ(store->Reserve(table, 16), absl::OkStatus());
  for (int32_t layer = 0; layer < 3; ++layer) {
    std::ranges::fill(store->Extent(layer, BlockId(table.block_ids()[1])),
                      static_cast<std::byte>(layer + 1));
  }
  BlockTable fork = table.Fork();
  EXPECT_EQ(store->BlocksToWrite(fork, 8, 9), 1);
  EXPECT_EQ(store->BlocksToWrite(fork, 8, 17), 2);
  BlockCopies copies;
  ASSERT_EQ(store->MakeWritable(fork, 8, 9, copies), absl::OkStatus());
  ASSERT_EQ(Copy(*store, copies), absl::OkStatus());
  ASSERT_NE(fork.block_ids()[1], table.block_ids()[1]);
  for (int32_t layer = 0; layer < 3; ++layer) {
    const auto copied = store->Extent(layer, BlockId(fork.block_ids()[1]));
    EXPECT_TRUE(std::ranges::all_of(
        copied, [&](std::byte b) { return b == static_cast<std::byte>(layer + 1); }));
  }
  const KvStats stats = store->stats();
  EXPECT_EQ(stats.total_blocks, 4);
  EXPECT_EQ(stats.free_blocks, 1);
  EXPECT_EQ(stats.shared_blocks, 1);
  EXPECT_EQ(stats.copied_blocks, 1);
  EXPECT_EQ(store->CheckInvariants(), absl::OkStatus());
}

TEST_F(KvStoreTest, RefusesWhatCannotBe) {
  KvLayout layout = Layout();
  layout.block_tokens = 7;
  EXPECT_EQ(Create(layout, 4).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Create(Layout(), 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Create(Layout(), 1 << 25).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Create(Layout(), 4, 4096).status().code(), absl::StatusCode::kInvalidArgument)
      << "no store block fits";
  EXPECT_EQ(Create(Layout(), 4, 1 << 20, CodecId::kF3).status().code(),
            absl::StatusCode::kInvalidArgument)
      << "extents that are too small to be encoded";
  KvLayout encoded = Layout();
  encoded.num_kv_heads = 4;
  encoded.head_dim = 64;
  EXPECT_TRUE(Create(encoded, 4, 1 << 22, CodecId::kF3).ok());
  EXPECT_EQ(Create(encoded, 4, 1 << 16, CodecId::kF3).status().code(),
            absl::StatusCode::kInvalidArgument)
      << "less than what is on its way";
  encoded.block_tokens = 128;
  EXPECT_EQ(Create(encoded, 4, 1 << 22, CodecId::kF3).status().code(),
            absl::StatusCode::kInvalidArgument)
      << "blocks of which not one would lie raw in a slab";
  EXPECT_EQ(Create(Layout(), 4, int64_t{1} << 50).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(KvStoreTest, MemoryIsTakenWhenItIsUsed) {
  KvLayout layout = Layout();
  layout.num_layers = 32;
  layout.num_kv_heads = 8;
  layout.head_dim = 128;
  const int64_t before = ResidentBytes();
  const auto store = *Create(layout, 2048);  // 512 MiB
  EXPECT_LT(ResidentBytes() - before, 32 << 20);
}

}  // namespace
}  // namespace tandem::kv_store_test
