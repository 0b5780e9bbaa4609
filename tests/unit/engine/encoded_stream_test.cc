#include "engine/handoff/encoded_stream.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "engine/handoff/rounding.h"
#include "gtest/gtest.h"
#include "kvstore/codec/frame_decoder.h"
#include "kvstore/codec/packed_extent.h"
#include "tests/support/fake_clock.h"
#include "tests/support/scripted_transport.h"
#include "tests/unit/kvstore/codec/codec_data.h"

namespace tandem::encoded_stream_test {
namespace {

constexpr int32_t kStreamLayers = 2;
constexpr uint64_t kStreamId = 9;
constexpr KvLayout kStreamLayout = {.num_layers = kStreamLayers,
                                    .num_kv_heads = 2,
                                    .head_dim = 64,
                                    .block_tokens = 16,
                                    .dtype = DType::kBF16};
constexpr ExtentShape kWholeBlock = {DType::kBF16, 2, 64, 16};
constexpr int32_t kPromptTokens = 41;  // two blocks and 9 tokens
constexpr int64_t kMostBytes = 1 << 20;

class EncodedStreamTest : public testing::Test {
 protected:
  EncodedStreamTest() {
    for (uint64_t seed = 0; encoder_.calibrates() && seed < 65; ++seed) {
      for (const int32_t layer : {0, 1}) encoder_.Calibrate(layer, LikeKv(kWholeBlock, seed));
    }
    for (uint32_t layer = 0; layer < kStreamLayers; ++layer) {
      for (uint32_t block = 0; block < 3; ++block) {
        kv_.push_back(LikeKv(kWholeBlock, 100 + 10 * layer + block));
        extents_.push_back({.layer = layer, .block = block, .payload = kv_.back()});
      }
    }
    wire_.SetLink({.takes_any_memory = true, .gigabytes_per_second = 0.001});
  }

  StreamHandle Open(std::vector<CodecId> codecs = {CodecId::kRaw, CodecId::kMaskRice},
                    KvQuality quality = KvQuality::kExact) {
    HandoffTarget target = {
        .data_address = "decode-1:7000", .reservation = ReservationId(kStreamId), .epoch = 3};
    target.reads.codecs = std::move(codecs);
    auto stream =
        EncodedStream::Open({encoder_, workers_, wire_}, target,
                            {.tokens = kPromptTokens, .quality = quality, .posted = posted_}, {},
                            [this](uint64_t id, uint64_t epoch, const absl::Status& status) {
                              EXPECT_EQ(id, kStreamId);
                              EXPECT_EQ(epoch, 3u);
                              ++num_ends_;
                              end_ = status;
                              ended_.Notify();
                            });
    EXPECT_TRUE(stream.ok()) << stream.status();
    return stream->stream;
  }

  // The only worker begins nothing before Release.
  void HoldWorker() {
    workers_.Queue([this] { released_.WaitForNotification(); });
  }
  // The worker stops in the middle of its work, when it posts what it has encoded.
  void StopWorkerInThePost() {
    wire_.OnPost([this](uint32_t layer) {
      if (layer == kStreamLayers) return;  // the tables
      in_post_.Notify();
      released_.WaitForNotification();
      left_post_ = true;
    });
  }
  void Release() { released_.Notify(); }

  uint64_t EncodedBytes() const {
    EngineStats stats;
    encoder_.AddTo(stats);
    uint64_t bytes = 0;
    for (const WireCodecStats& codec : stats.wire_codecs) bytes += codec.kv_bytes();
    return bytes;
  }
  // What a peer has of an extent once it was decoded.
  std::vector<std::byte> Decoded(const FrameDecoder& decoder, const RecordedFrame& frame) {
    ExtentShape shape = kWholeBlock;
    shape.tokens = std::min(16, kPromptTokens - static_cast<int32_t>(frame.block) * 16);
    std::vector<std::byte> tokens(shape.Bytes());
    EXPECT_EQ(decoder.Decode(shape, static_cast<int32_t>(frame.layer), frame.payload, tokens),
              absl::OkStatus());
    return tokens;
  }
  std::vector<std::byte> Sent(const RecordedFrame& frame) {
    ExtentShape shape = kWholeBlock;
    shape.tokens = std::min(16, kPromptTokens - static_cast<int32_t>(frame.block) * 16);
    std::vector<std::byte> tokens(shape.Bytes());
    PackTokens(shape, 16, kv_[frame.layer * 3 + frame.block], tokens);
    return tokens;
  }

  SteadyClock clock_;
  KvEncoder encoder_{
      {.layout = kStreamLayout, .codec = CodecId::kMaskRice, .most_bytes = kMostBytes}, clock_};
  ScriptedTransport wire_;
  std::vector<std::vector<std::byte>> kv_;
  std::vector<PostedExtent> extents_;
  std::shared_ptr<PostedKv> posted_ = std::make_shared<PostedKv>();
  std::atomic<int> num_ends_ = 0;
  absl::Status end_;
  absl::Notification ended_;
  absl::Notification released_;
  absl::Notification in_post_;
  std::atomic<bool> left_post_ = false;
  CodecWorkers workers_{1};  // last: its jobs use the above
};

TEST_F(EncodedStreamTest, ThePeerGetsTheTablesAndThenEachExtentEncoded) {
  const StreamHandle stream = Open();
  ASSERT_EQ(stream->Post(extents_), absl::OkStatus());
  ASSERT_EQ(stream->Finish(), absl::OkStatus());
  wire_.AwaitCommit(kStreamId);
  const std::vector<RecordedFrame> frames = wire_.frames();
  ASSERT_EQ(frames.size(), 7u);
  EXPECT_EQ(frames[0].kind, PayloadKind::kTables);
  EXPECT_EQ(frames[0].layer, 2u);
  const auto tables = CodecTables::Parse(frames[0].payload, kWholeBlock, kStreamLayers);
  ASSERT_TRUE(tables.ok()) << tables.status();
  FrameDecoder decoder;
  decoder.AddTables(std::make_shared<const CodecTables>(*tables));
  uint64_t bytes = frames[0].payload.size();
  for (size_t i = 1; i < frames.size(); ++i) {
    EXPECT_EQ(frames[i].kind, PayloadKind::kEncoded);
    EXPECT_EQ(Decoded(decoder, frames[i]), Sent(frames[i])) << i;
    bytes += frames[i].payload.size();
  }
  EXPECT_EQ(posted_->frames(), 7u);
  EXPECT_EQ(posted_->payload_bytes(), bytes);
  const KvParts parts = posted_->parts();
  ASSERT_EQ(parts.size(), 2u);
  for (const KvLayerParts& layer : parts) {
    EXPECT_EQ(layer.blocks, 3);
    EXPECT_EQ(layer.raw_blocks, 0);
    EXPECT_EQ(layer.k.kv_bytes, kPromptTokens * 2u * 64 * 2);
    EXPECT_EQ(layer.v.kv_bytes, layer.k.kv_bytes);
    bytes -= layer.k.wire_bytes + layer.v.wire_bytes;
  }
  EXPECT_EQ(bytes, frames[0].payload.size()) << "what is no part of any layer are the tables";
  EXPECT_LT(bytes - frames[0].payload.size(), 2u * kPromptTokens * 512u * 10 / 12);
  wire_.End(kStreamId, absl::OkStatus());
  EXPECT_EQ(num_ends_, 1);
  EXPECT_EQ(end_, absl::OkStatus());
}

// The first 4 tokens of the prompt.
TEST_F(EncodedStreamTest, ACompactStreamKeepsTheFrontOfThePromptExact) {
  const StreamHandle stream = Open({CodecId::kRaw, CodecId::kRounded}, KvQuality::kCompact);
  ASSERT_EQ(stream->Post(extents_), absl::OkStatus());
  ASSERT_EQ(stream->Finish(), absl::OkStatus());
  wire_.AwaitCommit(kStreamId);
  const std::vector<RecordedFrame> frames = wire_.frames();
  ASSERT_EQ(frames.size(), 7u);
  const auto tables = CodecTables::Parse(frames[0].payload, kWholeBlock, kStreamLayers);
  ASSERT_TRUE(tables.ok()) << tables.status();
  FrameDecoder decoder(RoundingSteps());
  decoder.AddTables(std::make_shared<const CodecTables>(*tables));
  decoder.ReadRounded();
  for (const RecordedFrame& frame : std::span(frames).subspan(1)) {
    ASSERT_EQ(frame.kind, PayloadKind::kEncoded);
    const std::vector<std::byte> decoded = Decoded(decoder, frame);
    const std::vector<std::byte> sent = Sent(frame);
    const size_t tokens = sent.size() / 512;
    for (size_t row = 0; row < 4 * tokens; ++row) {
      const size_t position = frame.block * 16 + row % tokens;
      const bool is_equal = std::equal(sent.begin() + static_cast<ptrdiff_t>(row * 128),
                                       sent.begin() + static_cast<ptrdiff_t>(row * 128 + 128),
                                       decoded.begin() + static_cast<ptrdiff_t>(row * 128));
      EXPECT_EQ(is_equal, position < 4) << position;
    }
  }
  wire_.End(kStreamId, absl::OkStatus());
}

TEST_F(EncodedStreamTest, TheCommitFollowsTheLastPiece) {
  HoldWorker();
  const StreamHandle stream = Open();
  ASSERT_EQ(stream->Post(extents_), absl::OkStatus());
  ASSERT_EQ(stream->Finish(), absl::OkStatus());
  EXPECT_EQ(wire_.frames().size(), 1u) << "the tables alone";
  Release();
  wire_.AwaitCommit(kStreamId);
  EXPECT_EQ(wire_.frames().size(), 7u);
  wire_.End(kStreamId, absl::OkStatus());
}

TEST_F(EncodedStreamTest, WithoutMemoryExtentsGoAsTheyAre) {
  ASSERT_TRUE(encoder_.Reserve(kMostBytes, 1));
  const StreamHandle stream = Open();
  ASSERT_EQ(stream->Post(extents_), absl::OkStatus());
  ASSERT_EQ(stream->Finish(), absl::OkStatus());
  wire_.AwaitCommit(kStreamId);
  const std::vector<RecordedFrame> frames = wire_.frames();
  ASSERT_EQ(frames.size(), 6u);
  for (const RecordedFrame& frame : frames) {
    EXPECT_EQ(frame.kind, PayloadKind::kExtent);
    EXPECT_EQ(frame.payload, kv_[frame.layer * 3 + frame.block]);
  }
  EngineStats stats;
  encoder_.AddTo(stats);
  EXPECT_EQ(stats.unencoded_extents, 6u);
  wire_.End(kStreamId, absl::OkStatus());
}

TEST_F(EncodedStreamTest, ForAPeerThatReadsNoFramesExtentsGoAsTheyAre) {
  const StreamHandle stream = Open({});
  ASSERT_EQ(stream->Post(extents_), absl::OkStatus());
  ASSERT_EQ(stream->Finish(), absl::OkStatus());
  wire_.AwaitCommit(kStreamId);
  for (const RecordedFrame& frame : wire_.frames()) EXPECT_EQ(frame.kind, PayloadKind::kExtent);
  EXPECT_EQ(wire_.frames().size(), 6u);
  wire_.End(kStreamId, absl::OkStatus());
}

TEST_F(EncodedStreamTest, MemoryIsHeldUntilTheStreamIsGone) {
  StreamHandle stream = Open();
  ASSERT_EQ(stream->Post(extents_), absl::OkStatus());
  ASSERT_EQ(stream->Finish(), absl::OkStatus());
  wire_.AwaitCommit(kStreamId);
  EXPECT_FALSE(encoder_.Reserve(kMostBytes, 1));
  wire_.End(kStreamId, absl::OkStatus());
  stream.reset();
  workers_.Queue([this] { released_.Notify(); });  // behind what the worker still holds
  released_.WaitForNotification();
  EXPECT_TRUE(encoder_.Reserve(kMostBytes, 1));
}

TEST_F(EncodedStreamTest, AbortReturnsWhenNoWorkerReads) {
  StopWorkerInThePost();
  const StreamHandle stream = Open();
  ASSERT_EQ(stream->Post(extents_), absl::OkStatus());
  in_post_.WaitForNotification();
  std::thread aborting([&] {
    stream->Abort();
    EXPECT_TRUE(left_post_) << "a worker still read the extents";
  });
  while (wire_.num_aborted() == 0) std::this_thread::yield();
  EXPECT_EQ(num_ends_, 0) << "extents are still read";
  Release();
  aborting.join();
  ended_.WaitForNotification();
  EXPECT_EQ(num_ends_, 1);
  EXPECT_EQ(end_.code(), absl::StatusCode::kCancelled);
}

TEST_F(EncodedStreamTest, TheEndIsReportedWhenNoWorkerReads) {
  StopWorkerInThePost();
  const StreamHandle stream = Open();
  ASSERT_EQ(stream->Post(extents_), absl::OkStatus());
  in_post_.WaitForNotification();
  wire_.End(kStreamId, absl::UnavailableError("the peer is gone"));
  EXPECT_EQ(num_ends_, 0);
  Release();
  ended_.WaitForNotification();
  EXPECT_EQ(num_ends_, 1);
  EXPECT_EQ(end_.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(left_post_);
}

TEST_F(EncodedStreamTest, WhatWaitsWhenTheStreamEndsIsNotRead) {
  HoldWorker();
  StreamHandle stream = Open();
  ASSERT_EQ(stream->Post(extents_), absl::OkStatus());
  wire_.End(kStreamId, absl::UnavailableError("the peer is gone"));
  EXPECT_EQ(num_ends_, 1);
  for (std::vector<std::byte>& extent : kv_) extent = {};  // as blocks that were freed
  Release();
  absl::Notification done;
  workers_.Queue([&done] { done.Notify(); });
  done.WaitForNotification();
  EXPECT_EQ(EncodedBytes(), 0u);
  EXPECT_TRUE(encoder_.Reserve(kMostBytes, 1)) << "its memory was given back";
  EXPECT_EQ(stream->Post(extents_), absl::OkStatus()) << "does nothing any more";
}

TEST_F(EncodedStreamTest, APostOfAWorkerThatFailsEndsTheStream) {
  HoldWorker();
  const StreamHandle stream = Open();
  ASSERT_EQ(stream->Post(extents_), absl::OkStatus());
  wire_.FailPost(absl::ResourceExhaustedError("too many frames"));
  Release();
  ended_.WaitForNotification();
  EXPECT_EQ(end_.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(stream->Finish(), absl::OkStatus());
}

}  // namespace
}  // namespace tandem::encoded_stream_test
