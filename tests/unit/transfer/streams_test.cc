// Streams that are sent, the memory of streams that were refused, and the answers of a receiver.
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "gtest/gtest.h"
#include "tests/fuzz/memory_channel.h"
#include "tests/support/lone_streams.h"
#include "tests/support/transport_probe.h"
#include "transfer/framed/outbound.h"
#include "transfer/framed/payload_path.h"
#include "transfer/framed/refused_streams.h"
#include "transfer/framed/reply_buffer.h"

namespace tandem::streams_test {
namespace {

constexpr StreamKey kKey = {.stream = 1, .epoch = 2};

// `count` extents of a byte.
std::vector<PostedExtent> Extents(size_t count) {
  static constexpr std::byte kByte{1};
  return std::vector<PostedExtent>(count, {.payload = {&kByte, 1}});
}

TEST(OutgoingStreamTest, FramesAreBoundedPerStream) {
  LoneStreams streams(4);
  const auto stream = streams.Open(kKey);
  EXPECT_EQ(stream->Post(Extents(3)), absl::OkStatus());
  EXPECT_EQ(stream->Post(Extents(2)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(stream->Post(Extents(1)), absl::OkStatus());
  EXPECT_EQ(stream->Post(Extents(0)), absl::OkStatus());
  EXPECT_EQ(stream->Post(Extents(1)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(stream->Finish(), absl::OkStatus());
  EXPECT_EQ(std::get<FinishCommand>(streams.commands().back()).frames, 4u)
      << "those that were refused do not count";
}

TEST(OutgoingStreamTest, AnOpeningEndsOnceAndOnlyItself) {
  LoneStreams streams;
  EndProbe ends;
  const auto first = streams.Open(kKey, ends.Callback());
  EXPECT_EQ(streams.Open(kKey, ends.Callback()), nullptr) << "it is open already";
  streams.streams().End(*first, absl::OkStatus());
  streams.streams().End(*first, Unavailable("late"));
  EXPECT_EQ(ends.count(1), 1);
  const auto second = streams.Open(kKey, ends.Callback());
  streams.streams().End(*first, Unavailable("of the one before"));
  first->Abort();
  EXPECT_EQ(ends.count(1), 1);
  EXPECT_EQ(streams.streams().Find(kKey), second);
  streams.streams().Close(Unavailable("over"));
  EXPECT_EQ(ends.count(1), 2);
  EXPECT_EQ(streams.streams().Find(kKey), nullptr);
}

TEST(OutgoingStreamTest, AStreamThatHasEndedQueuesNothing) {
  LoneStreams streams;
  EndProbe ends;
  const auto stream = streams.Open(kKey, ends.Callback());
  streams.streams().Close(Unavailable("over"));
  EXPECT_EQ(stream->Post(Extents(1)), absl::OkStatus());
  EXPECT_EQ(stream->Finish(), absl::OkStatus());
  stream->Abort();
  EXPECT_TRUE(streams.commands().empty());
  EXPECT_EQ(streams.Open(kKey, ends.Callback()), nullptr) << "after Close";
  EXPECT_EQ(ends.total(), 1);
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

// The frames that a channel was given.
std::vector<FrameHeader> HeadersOf(std::span<const std::byte> bytes) {
  std::vector<FrameHeader> headers;
  while (!bytes.empty()) {
    headers.push_back(*ParseFrameHeader(bytes.first<kFrameHeaderBytes>()));
    bytes = bytes.subspan(kFrameHeaderBytes);
  }
  return headers;
}

TEST(ReplyBufferTest, OneAnswerAsksForABoundedNumberOfExtents) {
  std::vector<MissingExtent> missing(10'000);
  for (uint32_t i = 0; i < missing.size(); ++i) missing[i].block = i;
  ReplyBuffer replies;
  replies.Resend(kKey, missing);
  MemoryChannel::Peer peer;
  MemoryChannel channel(peer);
  TransportCounters counters;
  EXPECT_EQ(replies.WriteTo(channel, counters), absl::OkStatus());
  const std::vector<FrameHeader> asked = HeadersOf(peer.outgoing);
  ASSERT_EQ(asked.size(), 8192u);
  for (uint32_t i = 0; i < asked.size(); ++i) {
    EXPECT_EQ(asked[i].type, FrameType::kResend);
    EXPECT_EQ(asked[i].block, i);
    EXPECT_EQ(asked[i].frames, 8192u) << "the sender waits for as many as are named";
  }
}

TEST(ReplyBufferTest, APeerThatReadsNoAnswersIsLeft) {
  ReplyBuffer replies;
  MemoryChannel::Peer peer = {.room_bytes = 0};
  MemoryChannel channel(peer);
  TransportCounters counters;
  replies.Ack(kKey, 1);
  EXPECT_EQ(replies.WriteTo(channel, counters), absl::OkStatus());
  for (size_t bytes = 0; bytes < (4 << 20); bytes += kFrameHeaderBytes) replies.Ack(kKey, 1);
  EXPECT_EQ(replies.WriteTo(channel, counters).code(), absl::StatusCode::kUnavailable);
}

// Each read of a socket is a system call, and answers that are shorter than the buffer are all
// there is.
TEST(OutboundConnectionTest, ASocketIsReadOnceForShortAnswers) {
  for (const size_t read_ahead_bytes : {0, 1}) {
    LoneStreams open;
    PeerStreams peer(9, SendRate(0, Duration::zero()), std::make_shared<Link>("peer", "test"),
                     open.streams(), [](OutgoingStream&, const absl::Status&) {});
    MemoryChannel::Peer other = {.read_ahead_bytes = read_ahead_bytes};
    auto channel = std::make_unique<MemoryChannel>(other);
    auto payloads = DirectPayloads().NewOutbound(*channel, 1);
    TransportCounters counters;
    OutboundConnection connection(peer, std::move(channel), std::move(payloads), counters,
                                  Timeouts());
    const auto credit = EncodeFrameHeader({.type = FrameType::kCredit, .frames = 1 << 20});
    other.incoming.assign(credit.begin(), credit.end());
    ASSERT_TRUE(connection.Advance().ok());
    EXPECT_EQ(counters.received, kFrameHeaderBytes);
    EXPECT_EQ(other.reads, read_ahead_bytes > 0 ? 1 : 2);
  }
}

}  // namespace
}  // namespace tandem::streams_test
