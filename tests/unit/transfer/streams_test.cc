// The books that all transports keep: streams that are sent, streams that were refused.
#include <optional>
#include <vector>

#include "base/status.h"
#include "gtest/gtest.h"
#include "tests/support/transport_probe.h"
#include "transfer/refused_streams.h"
#include "transfer/send_streams.h"

namespace tandem {
namespace {

constexpr StreamKey kKey = {.stream = 1, .epoch = 2};

// `count` extents of a byte.
std::vector<PostedExtent> Extents(size_t count) {
  static constexpr std::byte kByte{1};
  return std::vector<PostedExtent>(count, {.payload = {&kByte, 1}});
}

TEST(SendStreamsTest, FramesAreBoundedPerStream) {
  SendStreams streams(4);
  EndProbe ends;
  const uint64_t serial = *streams.Open(kKey, ends.Callback());
  EXPECT_EQ(*streams.Admit(kKey, Extents(3)), serial);
  EXPECT_EQ(streams.Admit(kKey, Extents(2)).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(*streams.Admit(kKey, Extents(1)), serial);
  EXPECT_EQ(*streams.Admit(kKey, Extents(0)), serial);
  EXPECT_EQ(streams.Admit(kKey, Extents(1)).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ((*streams.Finish(kKey))->frames, 4u) << "those that were refused do not count";
  streams.Close(Unavailable("over"));
}

TEST(SendStreamsTest, AnOpeningEndsOnceAndOnlyItself) {
  SendStreams streams(10);
  EndProbe ends;
  const uint64_t first = *streams.Open(kKey, ends.Callback());
  streams.End(kKey, first, absl::OkStatus());
  streams.End(kKey, first, Unavailable("late"));
  EXPECT_EQ(ends.count(1), 1);
  const uint64_t second = *streams.Open(kKey, ends.Callback());
  EXPECT_NE(first, second);
  streams.End(kKey, first, Unavailable("of the one before"));
  EXPECT_EQ(ends.count(1), 1);
  EXPECT_EQ(streams.Find(kKey), second);
  streams.Close(Unavailable("over"));
  EXPECT_EQ(ends.count(1), 2);
  EXPECT_EQ(streams.Find(kKey), std::nullopt);
}

TEST(SendStreamsTest, ClosedRefusesAndEndedDrops) {
  SendStreams streams(10);
  EndProbe ends;
  EXPECT_EQ(*streams.Admit(kKey, Extents(10)), std::nullopt);
  EXPECT_EQ(*streams.Admit(kKey, Extents(1)), std::nullopt);
  EXPECT_FALSE(streams.Finish(kKey)->has_value());
  streams.Close(Unavailable("over"));
  EXPECT_EQ(streams.Open(kKey, ends.Callback()).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ends.total(), 0);
}

TEST(RefusedStreamsTest, RemembersTheLatest) {
  RefusedStreams refused;
  for (uint64_t stream = 0; stream <= RefusedStreams::kCapacity; ++stream) {
    refused.Add({.stream = stream, .epoch = 1}, absl::StatusCode::kDataLoss);
  }
  EXPECT_EQ(refused.Find({.stream = 0, .epoch = 1}), std::nullopt);
  EXPECT_EQ(refused.Find({.stream = 1, .epoch = 1}), absl::StatusCode::kDataLoss);
  EXPECT_EQ(refused.Find({.stream = 1, .epoch = 2}), std::nullopt);
  refused.Erase({.stream = 1, .epoch = 1});
  EXPECT_EQ(refused.Find({.stream = 1, .epoch = 1}), std::nullopt);
}

}  // namespace
}  // namespace tandem
