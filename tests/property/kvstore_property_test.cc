// Random operations on block tables over one store, against a model that copies everything: each
// sequence is a vector of token values. Contents are compared by hash, extent by extent.
#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "gtest/gtest.h"
#include "kernels/registry.h"
#include "kvstore/kv_store.h"

namespace tandem {
namespace {

constexpr int kSeeds = 20;
constexpr int kOperationsPerSeed = 6000;
constexpr int kMaxSequences = 12;
constexpr int64_t kMaxTokens = 100;

KvLayout Layout() { return {.num_layers = 2, .num_kv_heads = 1, .head_dim = 8, .block_tokens = 8}; }

// The bytes of one token of one layer stand in for its K and V: a value for K, its complement for
// V. Tokens that were never written are 0.
class Trace {
 public:
  Trace(uint64_t seed, Backend& backend)
      : random_(seed),
        stream_(*backend.device->NewStream()),
        store_(*KvStore::Create(Layout(), Pick(8, 60), *backend.device, *backend.ops)) {}

  void Run() {
    for (int i = 0; i < kOperationsPerSeed && !::testing::Test::HasFailure(); ++i) {
      Operate();
      if (i % 64 == 0) CheckAll();
    }
    CheckAll();
    sequences_.clear();
    EXPECT_EQ(store_->pool().num_used(), 0);
    EXPECT_EQ(store_->pool().num_shared(), 0);
    EXPECT_EQ(store_->CheckInvariants(), absl::OkStatus());
    EXPECT_GT(store_->stats().copied_blocks, 0);
  }

 private:
  struct Sequence {
    BlockTable table{Layout().block_tokens};
    std::vector<uint16_t> tokens;  // the model
  };

  int64_t Pick(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

  auto PickSequence() {
    auto place = sequences_.begin();
    std::advance(place, Pick(0, static_cast<int64_t>(sequences_.size()) - 1));
    return place;
  }

  void Operate() {
    if (sequences_.empty()) return New();
    switch (Pick(0, 9)) {
      case 0:
        return New();
      case 1:
        return Fork();
      case 2:
        return Truncate();
      case 3:
        if (Pick(0, 2) == 0) sequences_.erase(PickSequence());
        return;
      case 4:
      case 5:
      case 6:
        return Overwrite();
      default:
        return Append();
    }
  }

  void New() {
    if (sequences_.size() < kMaxSequences) sequences_[next_id_++];
  }

  void Fork() {
    if (sequences_.size() >= kMaxSequences) return;
    const Sequence& parent = PickSequence()->second;
    Sequence child = {.table = parent.table.Fork(), .tokens = parent.tokens};
    sequences_.emplace(next_id_++, std::move(child));
  }

  void Truncate() {
    Sequence& sequence = PickSequence()->second;
    const int64_t kept = Pick(0, static_cast<int64_t>(sequence.tokens.size()));
    sequence.table.Truncate(kept);
    sequence.tokens.resize(kept);
  }

  void Append() {
    Sequence& sequence = PickSequence()->second;
    const auto begin = static_cast<int64_t>(sequence.tokens.size());
    const int64_t end = begin + Pick(1, 20);
    if (end > kMaxTokens) return;
    const int32_t blocks_before = sequence.table.num_blocks();
    const int32_t free_before = store_->pool().num_free();
    const absl::Status status = sequence.table.Reserve(store_->pool(), end);
    const int32_t missing = Layout().BlocksFor(end) - blocks_before;
    EXPECT_EQ(status.ok(), missing <= free_before) << status;
    EXPECT_EQ(sequence.table.num_blocks(), blocks_before + (status.ok() ? missing : 0));
    if (status.ok()) Write(sequence, begin, end);
  }

  void Overwrite() {
    Sequence& sequence = PickSequence()->second;
    const auto size = static_cast<int64_t>(sequence.tokens.size());
    const int64_t begin = Pick(0, size);
    Write(sequence, begin, Pick(begin, std::min(size, begin + 20)));
  }

  // Makes [begin, end) writable and writes new values there, in the store and in the model.
  void Write(Sequence& sequence, int64_t begin, int64_t end) {
    auto copies = sequence.table.MakeWritable(store_->pool(), begin, end);
    if (!copies.ok()) {
      EXPECT_EQ(copies.status().code(), absl::StatusCode::kResourceExhausted);
      sequence.table.Truncate(static_cast<int64_t>(sequence.tokens.size()));
      return;
    }
    ASSERT_EQ(store_->Execute(*stream_, *std::move(copies)), absl::OkStatus());
    if (static_cast<int64_t>(sequence.tokens.size()) < end) sequence.tokens.resize(end);
    for (int64_t position = begin; position < end; ++position) {
      const auto value = static_cast<uint16_t>(Pick(1, 65535));
      sequence.tokens[position] = value;
      for (int32_t layer = 0; layer < Layout().num_layers; ++layer) {
        WriteToken(sequence.table.Slot(position), layer, value);
      }
    }
  }

  void WriteToken(int64_t slot, int32_t layer, uint16_t value) {
    const KvLayout layout = Layout();
    const auto extent = store_->Extent(layer, BlockId(slot / layout.block_tokens));
    FillToken(extent, slot % layout.block_tokens, static_cast<uint16_t>(value + layer));
  }

  // K then V, [token][head_dim] each.
  static void FillToken(std::span<std::byte> extent, int64_t offset, uint16_t value) {
    const int64_t row_bytes = Layout().head_dim * SizeOf(Layout().dtype);
    std::byte* k = extent.data() + offset * row_bytes;
    std::byte* v = k + extent.size() / 2;
    const auto complement = static_cast<uint16_t>(~value);
    for (int64_t at = 0; at < row_bytes; at += 2) {
      std::memcpy(k + at, &value, 2);
      std::memcpy(v + at, &complement, 2);
    }
  }

  // Whole blocks are compared by hash with what the model says; a partly filled one is compared
  // after its unused tokens were made equal, since a block keeps what its last owner left.
  void CheckAll() {
    ASSERT_EQ(store_->CheckInvariants(), absl::OkStatus());
    std::map<int32_t, int32_t> holders;
    for (const auto& [id, sequence] : sequences_) {
      for (int32_t block : sequence.table.block_ids()) ++holders[block];
      for (int32_t i = 0; i < sequence.table.num_blocks(); ++i) CheckBlock(id, sequence, i);
    }
    for (const auto& [block, count] : holders) {
      EXPECT_EQ(store_->pool().count(BlockId(block)), count) << "block " << block;
    }
    EXPECT_EQ(static_cast<size_t>(store_->pool().num_used()), holders.size());
  }

  void CheckBlock(int id, const Sequence& sequence, int32_t index) {
    const int64_t first = int64_t{index} * Layout().block_tokens;
    const auto size = static_cast<int64_t>(sequence.tokens.size());
    for (int32_t layer = 0; layer < Layout().num_layers; ++layer) {
      const auto extent = store_->Extent(layer, BlockId(sequence.table.block_ids()[index]));
      std::vector<std::byte> expected(extent.begin(), extent.end());
      for (int64_t offset = 0; offset < Layout().block_tokens && first + offset < size; ++offset) {
        FillToken(expected, offset, static_cast<uint16_t>(sequence.tokens[first + offset] + layer));
      }
      EXPECT_EQ(Hash64(extent), Hash64(expected))
          << "sequence " << id << " block " << index << " layer " << layer;
    }
  }

  std::mt19937_64 random_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<KvStore> store_;  // before the tables: they must go first
  std::map<int, Sequence> sequences_;
  int next_id_ = 0;
};

TEST(KvStoreProperty, TablesHoldWhatTheModelHolds) {
  auto backend = OpenBackend("cpu", {.num_threads = 1});
  ASSERT_TRUE(backend.ok()) << backend.status();
  for (uint64_t seed = 1; seed <= kSeeds && !HasFailure(); ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Trace(seed, *backend).Run();
  }
}

}  // namespace
}  // namespace tandem
