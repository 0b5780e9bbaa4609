// Two engines and KV that is encoded on its way: the answer is the very same one as on one worker,
// and fewer bytes travel.

#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/handoff_pair.h"

namespace tandem::encoded_handoff_test {
namespace {

constexpr int32_t kEncodedVocab = 288;

EngineRequest EncodedRequest(uint64_t id, int32_t prompt_tokens) {
  return Greedy(id, RandomPrompt(id, prompt_tokens, kEncodedVocab), 12);
}

std::vector<int32_t> AnswerOfOneWorker(const EngineRequest& request) {
  TestEngine engine({});
  Recording whole;
  engine->Submit(request, whole.NewSink());
  EXPECT_TRUE(whole.AwaitFinish().status.ok());
  return whole.token_ids();
}

struct EncodedRun {
  std::vector<int32_t> tokens;
  KvReport kv;
};

EncodedRun HandOverEncoded(HandoffPair& pair, const EngineRequest& request) {
  const auto run = pair.Start(request);
  if (!run.ok()) {
    ADD_FAILURE() << run.status();
    return {};
  }
  pair.Continue(**run);
  const absl::Status status = pair.AwaitEnd(**run);
  EXPECT_TRUE(status.ok()) << status;
  return {.tokens = (*run)->token_ids(), .kv = (*run)->prefill.AwaitFinish().kv};
}

// Hands over prompts until the encoder has made its tables of them. It needs 1,024 tokens, and gets
// none of a stream that ends before a codec worker has looked at it.
void MakeTables(HandoffPair& pair, CodecId codec) {
  for (uint64_t id = 1; id < 1000; ++id) {
    if (HandOverEncoded(pair, EncodedRequest(1000 + id, 64)).kv.codec == CodecName(codec)) return;
  }
  FAIL() << "no tables were made of 64,000 tokens";
}

struct PartSums {
  PartBytes k;
  PartBytes v;
  uint64_t blocks = 0;
  uint64_t raw_blocks = 0;
};
PartSums SumsOf(const KvReport& kv) {
  PartSums sums;
  for (const KvLayerParts& layer : kv.parts) {
    sums.k.Add(layer.k);
    sums.v.Add(layer.v);
    sums.blocks += static_cast<uint64_t>(layer.blocks);
    sums.raw_blocks += static_cast<uint64_t>(layer.raw_blocks);
  }
  return sums;
}

// Nothing but the headers of the frames and the commit is beside the parts, once the peer has the
// tables.
void ExpectPartsAddUp(const KvReport& kv, int32_t layers) {
  ASSERT_EQ(kv.parts.size(), static_cast<size_t>(layers));
  const PartSums sums = SumsOf(kv);
  EXPECT_EQ(sums.k.kv_bytes + sums.v.kv_bytes, kv.raw_bytes);
  EXPECT_EQ(sums.k.wire_bytes + sums.v.wire_bytes + (sums.blocks + 1) * 64, kv.wire_bytes);
}

using CodecAndSizes = std::tuple<CodecId, int32_t, int32_t>;
class EncodedHandoffTest : public testing::TestWithParam<CodecAndSizes> {};

TEST_P(EncodedHandoffTest, TheAnswerIsThatOfOneWorkerAndFewerBytesTravel) {
  const auto [codec, prefill_tokens, decode_tokens] = GetParam();
  HandoffPair pair({.block_tokens = prefill_tokens, .wire_codec = codec},
                   {.block_tokens = decode_tokens}, Wire::kLoopback);
  MakeTables(pair, codec);
  for (const int32_t prompt_tokens : {1, 63, 64, 77, 200}) {
    const EngineRequest request =
        EncodedRequest(static_cast<uint64_t>(prompt_tokens), prompt_tokens);
    const EncodedRun run = HandOverEncoded(pair, request);
    EXPECT_EQ(run.tokens, AnswerOfOneWorker(request)) << prompt_tokens;
    EXPECT_EQ(run.kv.codec, CodecName(codec));
    ExpectPartsAddUp(run.kv, pair.prefill().layout().num_layers);
    if (prompt_tokens < 63) continue;
    EXPECT_EQ(SumsOf(run.kv).raw_blocks, 0u);
    EXPECT_GT(static_cast<double>(run.kv.raw_bytes) / static_cast<double>(run.kv.wire_bytes), 1.15)
        << prompt_tokens;
  }
  pair.decode().Settle();
  EXPECT_TRUE(pair.decode().AtRest());
  EXPECT_TRUE(pair.prefill().AtRest());
}

INSTANTIATE_TEST_SUITE_P(CodecsAndBlockSizes, EncodedHandoffTest,
                         testing::Values(CodecAndSizes{CodecId::kMaskRice, 64, 64},
                                         CodecAndSizes{CodecId::kMaskRice, 64, 8},
                                         CodecAndSizes{CodecId::kMaskRice, 32, 128},
                                         CodecAndSizes{CodecId::kF3, 64, 64}));

TEST(EncodedHandoffTest, WiderNumbersTakeKvThatCameEncoded) {
  HandoffPair pair({.block_tokens = 64, .kv_dtype = DType::kBF16, .wire_codec = CodecId::kMaskRice},
                   {.block_tokens = 16, .kv_dtype = DType::kF32}, Wire::kLoopback);
  HandoffPair as_it_is({.block_tokens = 64, .kv_dtype = DType::kBF16, .codec_threads = 0},
                       {.block_tokens = 16, .kv_dtype = DType::kF32}, Wire::kLoopback);
  MakeTables(pair, CodecId::kMaskRice);
  const EncodedRun run = HandOverEncoded(pair, EncodedRequest(5, 100));
  EXPECT_EQ(run.kv.codec, "mask-rice");
  EXPECT_EQ(run.tokens, HandOverEncoded(as_it_is, EncodedRequest(5, 100)).tokens);
}

TEST(EncodedHandoffTest, AProbeMeasuresWhatEncodingWouldDo) {
  HandoffPair pair({.block_tokens = 16, .probes_codecs = true}, {.block_tokens = 16},
                   Wire::kLoopback);
  uint64_t id = 0;
  const auto mask_rice = [&] { return pair.prefill()->stats().wire_codecs[1]; };
  const auto extent_bytes = static_cast<uint64_t>(pair.prefill().layout().ExtentBytes());
  while (mask_rice().kv_bytes() < 4 * extent_bytes) {
    ASSERT_LT(++id, 1000u);
    const EncodedRun run = HandOverEncoded(pair, EncodedRequest(id, 200));
    EXPECT_EQ(run.kv.codec, "raw");
    EXPECT_GE(run.kv.wire_bytes, run.kv.raw_bytes);
  }
  EXPECT_LT(mask_rice().wire_bytes(), mask_rice().kv_bytes());
  EXPECT_EQ(mask_rice().streams, 0u);
  EXPECT_LE(mask_rice().kv_bytes() * 32, pair.prefill()->stats().kv_bytes_sent);
}

EngineRequest RequestOfQuality(uint64_t id, int32_t prompt_tokens, KvQuality quality) {
  EngineRequest request = EncodedRequest(id, prompt_tokens);
  request.quality = quality;
  return request;
}

TEST(EncodedHandoffTest, WhereLossIsAllowedFewerBytesTravel) {
  HandoffPair pair({.block_tokens = 64, .wire_codec = CodecId::kMaskRice}, {.block_tokens = 64},
                   Wire::kLoopback);
  MakeTables(pair, CodecId::kMaskRice);
  HandOverEncoded(pair, RequestOfQuality(4, 200, KvQuality::kNear));  // brings the tables
  double before = 1.4;
  for (const auto& [quality, codec] :
       {std::pair{KvQuality::kNearStrict, "step0.027"}, std::pair{KvQuality::kNear, "step0.09"},
        std::pair{KvQuality::kCompact, "step0.385"}}) {
    const EncodedRun run = HandOverEncoded(pair, RequestOfQuality(5, 200, quality));
    EXPECT_EQ(run.kv.codec, codec);
    EXPECT_EQ(run.tokens.size(), 12u);
    ExpectPartsAddUp(run.kv, pair.prefill().layout().num_layers);
    const double ratio =
        static_cast<double>(run.kv.raw_bytes) / static_cast<double>(run.kv.wire_bytes);
    EXPECT_GT(ratio, before + 0.2) << codec;
    before = ratio;
  }
}

// KV that was changed on its way serves later prompts of its class alone.
TEST(EncodedHandoffTest, ChangedKvPoisonsNoCache) {
  HandoffPair pair({.block_tokens = 64, .wire_codec = CodecId::kMaskRice}, {.block_tokens = 64},
                   Wire::kLoopback);
  MakeTables(pair, CodecId::kMaskRice);
  const auto cached = [&](KvQuality quality) {
    const EngineRequest request = RequestOfQuality(5, 200, quality);
    const auto run = pair.Start(request);
    EXPECT_TRUE(run.ok()) << run.status();
    pair.Continue(**run);
    EXPECT_TRUE(pair.AwaitEnd(**run).ok());
    if (quality == KvQuality::kExact) {
      EXPECT_EQ((*run)->token_ids(), AnswerOfOneWorker(request));
    }
    return (*run)->reservation.cached_tokens;
  };
  EXPECT_EQ(cached(KvQuality::kCompact), 0);
  EXPECT_EQ(cached(KvQuality::kExact), 0);
  EXPECT_EQ(cached(KvQuality::kNear), 0);
  EXPECT_EQ(cached(KvQuality::kCompact), 192);
  EXPECT_EQ(cached(KvQuality::kExact), 192);
}

// A peer without codecs is sent KV as it lies in the pool.
TEST(EncodedHandoffTest, APeerThatReadsNoFramesGetsNone) {
  HandoffPair pair({.block_tokens = 64, .wire_codec = CodecId::kMaskRice},
                   {.block_tokens = 64, .codec_threads = 0}, Wire::kLoopback);
  const auto block = static_cast<uint64_t>(pair.prefill().layout().BlockBytes());
  const auto layers = static_cast<uint64_t>(pair.prefill().layout().num_layers);
  for (uint64_t id = 1; id < 24; ++id) {
    const EncodedRun run = HandOverEncoded(pair, EncodedRequest(id, 77));
    EXPECT_EQ(run.kv.codec, "raw");
    EXPECT_EQ(run.kv.wire_bytes, 2 * block + (2 * layers + 1) * 64);
    const PartSums sums = SumsOf(run.kv);
    EXPECT_EQ(sums.k.kv_bytes + sums.v.kv_bytes, run.kv.raw_bytes);
    EXPECT_EQ(sums.k.wire_bytes + sums.v.wire_bytes, 2 * block);
    EXPECT_EQ(sums.raw_blocks, 2 * layers);
  }
  const EngineStats stats = pair.prefill()->stats();
  for (const WireCodecStats& codec : stats.wire_codecs) EXPECT_EQ(codec.streams, 0u);
}

// The last block of a prompt travels without the room behind its tokens, whatever the codec.
TEST(EncodedHandoffTest, ABlockThatIsNotFullSendsWhatItHolds) {
  HandoffPair pair({.block_tokens = 64, .wire_codec = CodecId::kRaw}, {.block_tokens = 64},
                   Wire::kLoopback);
  const KvLayout layout = pair.prefill().layout();
  const auto layers = static_cast<uint64_t>(layout.num_layers);
  const EngineRequest request = EncodedRequest(9, 9);
  const EncodedRun run = HandOverEncoded(pair, request);
  EXPECT_EQ(run.tokens, AnswerOfOneWorker(request));
  EXPECT_EQ(run.kv.raw_bytes, 9 * static_cast<uint64_t>(layout.BytesPerToken()));
  EXPECT_EQ(run.kv.wire_bytes, run.kv.raw_bytes + layers * (64 + kCodecHeaderBytes) + 64);
  ExpectPartsAddUp(run.kv, layout.num_layers);
  EXPECT_EQ(SumsOf(run.kv).raw_blocks, layers);
}

// The counts of the worker are the sums over its requests.
TEST(EncodedHandoffTest, ThePartsOfAllRequestsAreThoseOfTheWorker) {
  HandoffPair pair({.block_tokens = 64, .wire_codec = CodecId::kMaskRice}, {.block_tokens = 64},
                   Wire::kLoopback);
  MakeTables(pair, CodecId::kMaskRice);
  const auto counted = [&] {
    PartSums sums;
    for (const WireCodecStats& codec : pair.prefill()->stats().wire_codecs) {
      sums.k.Add(codec.k);
      sums.v.Add(codec.v);
    }
    return sums;
  };
  PartSums expected = counted();
  for (const auto& [id, quality] :
       {std::pair{uint64_t{5}, KvQuality::kExact}, std::pair{uint64_t{6}, KvQuality::kCompact}}) {
    const PartSums sums = SumsOf(HandOverEncoded(pair, RequestOfQuality(id, 200, quality)).kv);
    expected.k.Add(sums.k);
    expected.v.Add(sums.v);
  }
  pair.prefill().Settle();
  EXPECT_EQ(counted().k, expected.k);
  EXPECT_EQ(counted().v, expected.v);
}

}  // namespace
}  // namespace tandem::encoded_handoff_test
