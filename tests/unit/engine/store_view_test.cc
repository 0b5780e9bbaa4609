// How many blocks the scheduler is told that a sequence will take.

#include "engine/store_view.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/registry.h"
#include "tests/support/test_engine.h"

namespace tandem::store_view_test {
namespace {

constexpr int32_t kBlockTokens = 8;

class StoreViewTest : public testing::Test {
 protected:
  void SetUp() override {
    auto backend = OpenBackend("cpu", {.num_threads = 1});
    ASSERT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
    auto stream = backend_.device->NewStream();
    ASSERT_TRUE(stream.ok()) << stream.status();
    stream_ = *std::move(stream);
    const KvLayout layout = {
        .num_layers = 1, .num_kv_heads = 1, .head_dim = 8, .block_tokens = kBlockTokens};
    auto store = KvStore::Create({.layout = layout, .num_blocks = 16}, *backend_.device, *stream_,
                                 /*wake=*/nullptr);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    sequence_ = std::make_unique<Sequence>(SequenceId(1), request_, store_->NewKey(""));
    sequence_->rows = {{.tokens = request_.spec.prompt}};
  }

  BlockTable TableOf(int64_t tokens) {
    BlockTable table(kBlockTokens);
    EXPECT_TRUE(store_->Reserve(table, tokens).ok());
    return table;
  }

  int32_t BlocksToReach(int32_t end) {
    const StoreView view(*store_, [this](SequenceId) -> const Sequence& { return *sequence_; });
    return view.BlocksToReach(SequenceId(1), end);
  }

  Backend backend_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<KvStore> store_;
  RequestState request_{Greedy(1, RandomPrompt(1, 16, 288), 20)};
  std::unique_ptr<Sequence> sequence_;
};

TEST_F(StoreViewTest, TheLastBeamToWriteASharedBlockTakesItWithoutACopy) {
  sequence_->tables.push_back(TableOf(20));
  sequence_->tables.push_back(sequence_->tables.front().Fork());
  EXPECT_EQ(BlocksToReach(21), 1);
  sequence_->tables.push_back(sequence_->tables.front().Fork());
  EXPECT_EQ(BlocksToReach(21), 2);
  const BlockTable other = sequence_->tables.front().Fork();
  EXPECT_EQ(BlocksToReach(21), 3) << "another sequence keeps the block as it is";
}

TEST_F(StoreViewTest, BeamsTakeANewBlockEachAtABlockBoundary) {
  sequence_->tables.push_back(TableOf(24));
  sequence_->tables.push_back(sequence_->tables.front().Fork());
  EXPECT_EQ(BlocksToReach(25), 2);
}

// All but the last token of the prompt are cached, so the prefix ends inside its last block, which
// is copied before that token is written.
TEST_F(StoreViewTest, AnAdmissionCountsTheCopyOfAPartlyMatchedBlock) {
  EXPECT_EQ(BlocksToReach(16), 2);
  {
    const BlockTable table = TableOf(16);
    store_->Insert(sequence_->key, sequence_->rows.front().tokens, 16, table);
  }
  EXPECT_EQ(BlocksToReach(16), 3) << "two idle blocks of the cache and the copy";
}

}  // namespace
}  // namespace tandem::store_view_test
