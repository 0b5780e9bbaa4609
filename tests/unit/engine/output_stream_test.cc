#include "engine/output_stream.h"

#include <utility>
#include <vector>

#include "base/status.h"
#include "gtest/gtest.h"
#include "tests/support/recording_sink.h"

namespace tandem::output_stream_test {
namespace {

TEST(OutputStreamTest, PassesTokensAndOneEnd) {
  Recording recording;
  OutputStream stream(recording.NewSink());
  const std::vector<SampledToken> tokens = {{.token_id = 4}, {.token_id = 2}};
  stream.Emit(0, tokens, {});
  EXPECT_FALSE(recording.finished());
  stream.Finish({.reason = FinishReason::kStop});
  EXPECT_FALSE(stream.open());
  EXPECT_EQ(recording.token_ids(), (std::vector<int32_t>{4, 2}));
  EXPECT_EQ(recording.AwaitFinish().reason, FinishReason::kStop);
  EXPECT_EQ(recording.num_finishes(), 1);
}

TEST(OutputStreamTest, DroppedWithoutAnEndItReportsABug) {
  Recording recording;
  { const OutputStream stream(recording.NewSink()); }
  EXPECT_EQ(recording.AwaitFinish().status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(recording.num_finishes(), 1);
}

TEST(OutputStreamTest, MovedItEndsOnce) {
  Recording recording;
  {
    OutputStream first(recording.NewSink());
    OutputStream second(std::move(first));
    OutputStream third;
    third = std::move(second);
    third.Fail(Cancelled("enough"));
  }
  EXPECT_EQ(recording.AwaitFinish().status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(recording.num_finishes(), 1);
}

TEST(OutputStreamTest, WhatIsMovedOverIsEndedToo) {
  Recording kept;
  Recording replaced;
  {
    OutputStream stream(replaced.NewSink());
    stream = OutputStream(kept.NewSink());
    EXPECT_EQ(replaced.num_finishes(), 1);
    stream.Finish({.reason = FinishReason::kLength});
  }
  EXPECT_EQ(kept.num_finishes(), 1);
  EXPECT_EQ(replaced.num_finishes(), 1);
}

TEST(OutputStreamDeathTest, TokensAfterTheEndAreABug) {
  Recording recording;
  OutputStream stream(recording.NewSink());
  stream.Finish({.reason = FinishReason::kStop});
  EXPECT_DEATH(stream.Emit(0, {}, {}), "");
}

}  // namespace
}  // namespace tandem::output_stream_test
