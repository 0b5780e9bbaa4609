// The sending half of a hand-off: what a prefill engine posts, when it opens and keeps its streams,
// and what it makes of the peer's answers.

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/recording_sink.h"
#include "tests/support/scripted_transport.h"
#include "tests/support/test_engine.h"
#include "tests/unit/engine/prefill_handoff_fixture.h"

namespace tandem::prefill_handoff_test {
namespace {

using absl::StatusCode;
using prefill_handoff::kStream;
using prefill_handoff::kVocabSize;
using prefill_handoff::PrefillHandoffTest;

// By tokens of a chunk, and by what layers wait for.
class PostedBlocksTest : public PrefillHandoffTest,
                         public testing::WithParamInterface<std::tuple<int32_t, int64_t>> {};

TEST_P(PostedBlocksTest, EachBlockOfEachLayerOnceAndInOrder) {
  const auto [chunk, least_post_bytes] = GetParam();
  Start({.least_post_bytes = least_post_bytes,
         .block_tokens = 8,
         .scheduler = {.max_prefill_chunk = chunk}});
  Prefill(43);
  wire_->AwaitCommit(kStream);
  std::map<uint32_t, std::vector<uint32_t>> blocks_of_layer;
  for (const RecordedFrame& frame : wire_->frames()) {
    EXPECT_EQ(std::tuple(frame.stream, frame.epoch), std::tuple(kStream, uint64_t{3}));
    EXPECT_EQ(static_cast<int64_t>(frame.payload.size()),
              (*engine_)->options().layout.ExtentBytes());
    blocks_of_layer[frame.layer].push_back(frame.block);
  }
  ASSERT_EQ(blocks_of_layer.size(), 2u);
  for (const auto& [layer, blocks] : blocks_of_layer) {
    EXPECT_EQ(blocks, (std::vector<uint32_t>{0, 1, 2, 3, 4, 5})) << "layer " << layer;
  }
  wire_->End(kStream, absl::OkStatus());
  ExpectEnd(StatusCode::kOk);
}

INSTANTIATE_TEST_SUITE_P(ChunksAndBytes, PostedBlocksTest,
                         testing::Combine(testing::Values(1, 3, 8, 13, 0),
                                          testing::Values(0, int64_t{1} << 20)));

// The first layer of each post, by what layers wait for.
class PostsTest : public PrefillHandoffTest {
 protected:
  std::vector<uint32_t> FirstLayers(int64_t least_post_bytes) {
    std::vector<uint32_t> layers;
    Start({.least_post_bytes = least_post_bytes, .block_tokens = 8});
    wire_->OnPost([&layers](uint32_t layer) { layers.push_back(layer); });
    Prefill(43);
    wire_->AwaitCommit(kStream);
    wire_->End(kStream, absl::OkStatus());
    ExpectEnd(StatusCode::kOk);
    return layers;
  }
};

TEST_F(PostsTest, LayersOfLittleKvArePostedTogether) {
  EXPECT_EQ(FirstLayers(1 << 20), (std::vector<uint32_t>{0}));
}

TEST_F(PostsTest, LayersOfMuchKvArePostedOneByOne) {
  EXPECT_EQ(FirstLayers(1), (std::vector<uint32_t>{0, 1}));
}

TEST_F(PrefillHandoffTest, TheFirstTokenDoesNotWaitForThePeer) {
  Start({.block_tokens = 8});
  Prefill(20);
  ASSERT_TRUE(recording_.AwaitTokens(1));
  wire_->AwaitCommit(kStream);
  EXPECT_FALSE(recording_.finished());
  wire_->End(kStream, absl::OkStatus());
  ExpectEnd(StatusCode::kOk);
  const FinishInfo end = recording_.AwaitFinish();
  EXPECT_EQ(end.reason, FinishReason::kHandedOff);
  EXPECT_EQ(recording_.token_ids().size(), 1u);
  const KvLayout& layout = (*engine_)->options().layout;
  EXPECT_EQ(end.kv.raw_bytes, 20u * static_cast<uint64_t>(layout.BytesPerToken()));
  EXPECT_EQ(end.kv.wire_bytes, 3u * static_cast<uint64_t>(layout.BlockBytes()) + (6 + 1) * 64u);
  // The third block is sent whole and holds 4 tokens.
  ASSERT_EQ(end.kv.parts.size(), 2u);
  const uint64_t token = static_cast<uint64_t>(layout.BytesPerToken()) / 4;
  for (const KvLayerParts& layer : end.kv.parts) {
    EXPECT_EQ(layer.blocks, 3);
    EXPECT_EQ(layer.raw_blocks, 3);
    EXPECT_EQ(layer.k, (PartBytes{.kv_bytes = 20 * token, .wire_bytes = 24 * token}));
    EXPECT_EQ(layer.v, layer.k);
  }
  EXPECT_GE(end.kv.duration, end.kv.exposed);
  EXPECT_GT(end.kv.exposed.count(), 0);
  EXPECT_GT(end.stages.transfer.count(), 0);
}

TEST_F(PrefillHandoffTest, BlocksAreHeldUntilThePeerHasThem) {
  Start({.block_tokens = 8});
  Prefill(20);
  wire_->AwaitCommit(kStream);
  ASSERT_TRUE(recording_.AwaitTokens(1));
  Recording other;  // its end comes after the step in which the first was parked
  (*engine_)->SubmitPrefill(Greedy(2, {1, 2}, 1), {.reservation = ReservationId(6)},
                            other.NewSink());
  EXPECT_TRUE(other.AwaitFinish().status.ok());
  const EngineStats stats = (*engine_)->stats();
  EXPECT_EQ(stats.handoffs, 1);
  EXPECT_EQ(stats.scheduler.parked, 1);
  EXPECT_EQ(stats.kv.free_blocks, stats.kv.total_blocks - 3);
  wire_->End(kStream, absl::OkStatus());
  ExpectEnd(StatusCode::kOk);
}

TEST_F(PrefillHandoffTest, WhatEndsWithItsFirstTokenIsNotCommitted) {
  Start();
  Prefill(Greedy(1, RandomPrompt(1, 20, kVocabSize), 1));
  ExpectEnd(StatusCode::kOk);
  EXPECT_EQ(recording_.AwaitFinish().reason, FinishReason::kLength);
  EXPECT_EQ(recording_.token_ids().size(), 1u);
  EXPECT_EQ(wire_->num_aborted(), 1);
}

TEST_F(PrefillHandoffTest, ARejectionEndsItWithThePeersStatus) {
  Start();
  Prefill(40);
  wire_->AwaitCommit(kStream);
  wire_->End(kStream, absl::NotFoundError("the reservation lapsed"));
  ExpectEnd(StatusCode::kNotFound);
  EXPECT_EQ(wire_->num_opened(), 1) << "it would be refused again";
}

TEST_F(PrefillHandoffTest, TheStreamOpensOnArrivalThoughAStepRuns) {
  Start({.least_post_bytes = 0});
  Recording later;
  bool submitted = false;
  std::optional<int> opened_by_the_second_layer;
  wire_->OnPost([&](uint32_t layer) {
    if (layer == 0 && !std::exchange(submitted, true)) {
      (*engine_)->SubmitPrefill(Greedy(2, {1, 2}, 4), {.reservation = ReservationId(6)},
                                later.NewSink());
    }
    if (layer == 1 && !opened_by_the_second_layer) opened_by_the_second_layer = wire_->num_opened();
  });
  Prefill(10);
  wire_->AwaitCommit(kStream);
  wire_->AwaitCommit(6);
  EXPECT_EQ(opened_by_the_second_layer, 2);
  wire_->End(kStream, absl::OkStatus());
  wire_->End(6, absl::OkStatus());
  EXPECT_TRUE(later.AwaitFinish().status.ok());
  ExpectEnd(StatusCode::kOk);
}

TEST_F(PrefillHandoffTest, TheLeaseIsRenewedSeveralTimes) {
  Start();
  (*engine_)->SubmitPrefill(
      Greedy(1, {1, 2, 3}, 4),
      {.reservation = ReservationId(kStream), .lease = std::chrono::seconds(3)},
      recording_.NewSink());
  wire_->AwaitCommit(kStream);
  EXPECT_EQ(wire_->renew_every(), std::chrono::milliseconds(500));
  wire_->End(kStream, absl::OkStatus());
  ExpectEnd(StatusCode::kOk);
}

// The end of the aborted stream is told when the next request of that id is there already.
TEST_F(PrefillHandoffTest, TheEndOfAnEarlierStreamIsNotTheEndOfTheNext) {
  Start({.scheduler = {.max_prefill_chunk = 8}});
  engine_->gate().Allow(1);
  Prefill(40);
  engine_->gate().AwaitHeld();
  Recording next;
  (*engine_)->Cancel(RequestId(1), absl::OkStatus());
  (*engine_)->SubmitPrefill(Greedy(1, {1, 2, 3}, 4), {.reservation = ReservationId(6)},
                            next.NewSink());
  engine_->gate().Open();
  EXPECT_EQ(recording_.AwaitFinish().status.code(), StatusCode::kCancelled);
  wire_->AwaitCommit(6);
  wire_->End(6, absl::OkStatus());
  EXPECT_TRUE(next.AwaitFinish().status.ok()) << next.AwaitFinish().status;
  EXPECT_TRUE(engine_->AtRest());
}

TEST_F(PrefillHandoffTest, AnAcknowledgementBeforeTheCommitIsRefused) {
  Start({.scheduler = {.max_prefill_chunk = 8}});
  engine_->gate().Allow(1);
  Prefill(40);
  engine_->gate().AwaitHeld();
  wire_->End(kStream, absl::OkStatus());
  engine_->gate().Open();
  ExpectEnd(StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace tandem::prefill_handoff_test
