// The steps in which a prefill worker rounds the KV of each layer.
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/handoff_pair.h"
#include "tests/unit/engine/kv_encoder_fixture.h"

namespace tandem::rounded_layers_test {
namespace {

using kv_encoder::kEncoderLayout;
using kv_encoder::kEncoderShape;
using kv_encoder::kSlowLink;
using kv_encoder::KvEncoderTest;
using kv_encoder::TargetThatReads;

class RoundedLayersTest : public KvEncoderTest {
 protected:
  // The tables of an encoder that knows so much of its model.
  CodecTables TablesWith(const KvSensitivity& sensitivity) {
    encoder_ = std::make_unique<KvEncoder>(
        KvEncoder::Options{
            .layout = kEncoderLayout, .codec = CodecId::kMaskRice, .sensitivity = sensitivity},
        clock_);
    MakeTables();
    const StreamEncoding encoding =
        encoder_->Choose(TargetThatReads({CodecId::kRaw, CodecId::kRounded}),
                         {.link = kSlowLink, .bytes = 1 << 20, .quality = KvQuality::kNear});
    auto tables = CodecTables::Parse(encoding.tables, kEncoderShape, kEncoderLayout.num_layers);
    EXPECT_TRUE(tables.ok()) << tables.status();
    return *std::move(tables);
  }
};

TEST_F(RoundedLayersTest, WhatTheModelIsSensitiveToIsRoundedInFinerSteps) {
  const CodecTables tables = TablesWith({.k = {1, 100}, .v = {4, 0.04f}});
  EXPECT_NEAR(tables.Of(0, 0).weight / tables.Of(1, 0).weight, 10, 1e-3) << "K";
  EXPECT_NEAR(tables.Of(0, 1).weight / tables.Of(1, 1).weight, 0.1, 1e-5) << "V";
}

TEST_F(RoundedLayersTest, LayersOfAModelThatWasNotMeasuredAreAllAlike) {
  const CodecTables tables = TablesWith({});
  for (const int32_t layer : {0, 1}) {
    for (const int32_t side : {0, 1}) EXPECT_EQ(tables.Of(layer, side).weight, 1);
  }
}

// Hands over prompts until KV is rounded. What became of each layer's.
std::vector<KvLayerParts> PartsOfRounded(HandoffPair& pair) {
  for (uint64_t id = 1; id < 1000; ++id) {
    EngineRequest request = Greedy(id, RandomPrompt(id, 64, 288), 2);
    request.quality = KvQuality::kNear;
    const auto run = pair.Start(request);
    if (!run.ok()) break;
    pair.Continue(**run);
    if (!pair.AwaitEnd(**run).ok()) break;
    const KvReport kv = (*run)->prefill.AwaitFinish().kv;
    if (kv.codec.starts_with("step")) return kv.parts;
  }
  ADD_FAILURE() << "no KV was rounded";
  return {};
}

TEST(RoundedLayersHandoffTest, AnEngineRoundsEachLayerAsItsOptionsSay) {
  const int32_t num_layers = TestEngine({}).layout().num_layers;
  ASSERT_GT(num_layers, 1);
  KvSensitivity sensitivity;
  sensitivity.k.assign(static_cast<size_t>(num_layers), 1);
  sensitivity.v = sensitivity.k;
  sensitivity.k.back() = 1e6f;
  HandoffPair alike({.block_tokens = 64, .wire_codec = CodecId::kMaskRice}, {.block_tokens = 64},
                    Wire::kLoopback);
  HandoffPair finer(
      {.block_tokens = 64, .wire_codec = CodecId::kMaskRice, .kv_sensitivity = sensitivity},
      {.block_tokens = 64}, Wire::kLoopback);
  const std::vector<KvLayerParts> before = PartsOfRounded(alike);
  const std::vector<KvLayerParts> after = PartsOfRounded(finer);
  ASSERT_EQ(before.size(), static_cast<size_t>(num_layers));
  ASSERT_EQ(after.size(), before.size());
  EXPECT_GT(after.back().k.wire_bytes, before.back().k.wire_bytes * 5 / 4) << "in finer steps";
  EXPECT_LT(after.front().k.wire_bytes, before.front().k.wire_bytes) << "in coarser steps";
  EXPECT_LT(after.back().v.wire_bytes, before.back().v.wire_bytes) << "likewise";
}

}  // namespace
}  // namespace tandem::rounded_layers_test
