// A prefill and a decode engine on the device of the test (tests/support/test_device.h) and a wire
// between them: what is handed over from one device's memory into another's changes no answer.

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "tests/support/handoff_pair.h"
#include "tests/support/recording_sink.h"
#include "tests/support/reference_ops.h"
#include "tests/support/shallow_model.h"
#include "tests/support/test_engine.h"

namespace tandem::device_handoff_test {
namespace {

using TokenIds = std::vector<int32_t>;

constexpr int32_t kVocabSize = 2048;

// No row depends on its batch: splits are fixed, and no step has more rows than our own matrix
// product takes (docs/cuda.md). An engine records a decode of each size up to `max_sequences` at
// its start, most of what these tests take on the emulated GPU, so that a test says how many it
// needs.
TestEngineSetup Blocks(int32_t max_sequences) {
  return {.checkpoint = ShallowSample(),
          .num_blocks = 64,
          .block_tokens = 16,
          .max_context_tokens = 512,
          .scheduler = {.max_step_tokens = 8, .max_sequences = max_sequences},
          .splits = SplitMode::kFixed,
          .gated = false};
}

// Prompts around the edges of blocks and of steps.
std::vector<EngineRequest> Requests() {
  std::vector<EngineRequest> requests;
  for (int32_t prompt_tokens : {1, 15, 16, 17, 40, 64}) {
    const uint64_t id = requests.size() + 1;
    EngineRequest request = Greedy(id, RandomPrompt(id, prompt_tokens, kVocabSize), 6);
    request.sampling = {.temperature = 0.8f, .seed = id};
    requests.push_back(std::move(request));
  }
  requests.back().n = 2;
  return requests;
}

std::vector<TokenIds> AllChoices(const Disaggregated& run) {
  std::vector<TokenIds> choices;
  for (int32_t i = 0; i < run.request.n; ++i) choices.push_back(run.token_ids(i));
  return choices;
}

// What one engine answers to each request when it is alone and nothing is cached, by its prompt.
std::map<std::vector<int32_t>, std::vector<TokenIds>> AnswersOfOneEngine() {
  TestEngineSetup setup = Blocks(2);
  setup.prefix_caching = PrefixCaching::kOff;
  TestEngine engine(setup);
  std::map<std::vector<int32_t>, std::vector<TokenIds>> answers;
  for (const EngineRequest& request : Requests()) {
    Recording recording;
    engine->Submit(request, recording.NewSink());
    EXPECT_EQ(recording.AwaitFinish().status, absl::OkStatus());
    std::vector<TokenIds>& choices = answers[request.prompt];
    for (int32_t i = 0; i < request.n; ++i) choices.push_back(recording.token_ids(i));
  }
  return answers;
}

// Every test compares with the same few answers, and on the emulated GPU an engine takes long to
// start, so that each request is answered once.
const std::vector<TokenIds>& Unified(const EngineRequest& request) {
  static const auto answers = AnswersOfOneEngine();
  return answers.at(request.prompt);
}

class DeviceHandoffTest : public testing::TestWithParam<Wire> {
 protected:
  void ExpectAtRest() {
    pair_.decode().Settle();
    EXPECT_TRUE(pair_.prefill().AtRest());
    EXPECT_TRUE(pair_.decode().AtRest());
  }

  HandoffPair pair_{Blocks(4), GetParam()};
};

TEST_P(DeviceHandoffTest, ChangesNoAnswer) {
  const std::vector<EngineRequest> requests = Requests();
  // As many at a time as the engines have rows for; the last request takes two.
  for (const std::vector<size_t>& together : {std::vector<size_t>{0, 1, 2, 3}, {4, 5}}) {
    std::vector<Disaggregated*> runs;
    for (const size_t i : together) {
      const auto run = pair_.Start(requests[i]);
      ASSERT_TRUE(run.ok()) << run.status();
      runs.push_back(*run);
    }
    for (Disaggregated* run : runs) pair_.Continue(*run);
    for (Disaggregated* run : runs) EXPECT_EQ(pair_.AwaitEnd(*run), absl::OkStatus());
    for (size_t i = 0; i < runs.size(); ++i) {
      EXPECT_EQ(AllChoices(*runs[i]), Unified(requests[together[i]])) << "request " << together[i];
    }
  }
  ExpectAtRest();
}

TEST_P(DeviceHandoffTest, WhatIsCachedIsNotSentAgain) {
  EngineRequest request = Requests()[5];
  request.n = 1;
  std::vector<TokenIds> answers;
  std::vector<uint64_t> sent;
  for (uint64_t id : {1, 2}) {
    request.id = RequestId(id);
    const auto run = pair_.Start(request);
    ASSERT_TRUE(run.ok()) << run.status();
    pair_.Continue(**run);
    ASSERT_EQ(pair_.AwaitEnd(**run), absl::OkStatus());
    answers.push_back((*run)->token_ids());
    sent.push_back((*run)->prefill.AwaitFinish().kv.raw_bytes);
  }
  EXPECT_EQ(answers[0], answers[1]);
  EXPECT_LT(sent[1], sent[0]);
  ExpectAtRest();
}

// Blocks of one hand-off are the next one's, again and again.
TEST_P(DeviceHandoffTest, BlocksChangeHandsAgainAndAgain) {
  EngineRequest request = Requests()[4];
  const std::vector<TokenIds> expected = Unified(request);
  for (uint64_t id = 1; id <= 5; ++id) {
    request.id = RequestId(id);
    request.cache_salt = std::to_string(id);  // no hit: all of it is sent
    const auto run = pair_.Start(request);
    ASSERT_TRUE(run.ok()) << run.status();
    pair_.Continue(**run);
    ASSERT_EQ(pair_.AwaitEnd(**run), absl::OkStatus());
    EXPECT_EQ(AllChoices(**run), expected) << "time " << id;
  }
  ExpectAtRest();
}

INSTANTIATE_TEST_SUITE_P(Wires, DeviceHandoffTest, testing::Values(Wire::kTcp, Wire::kLoopback),
                         [](const auto& info) {
                           return std::string(info.param == Wire::kTcp ? "tcp" : "loopback");
                         });

struct Sizes {
  Wire wire;
  int32_t prefill_block_tokens;
  int32_t decode_block_tokens;
  int32_t conversion_slots;
};

TestEngineSetup WithBlocksOf(int32_t block_tokens) {
  TestEngineSetup setup = Blocks(2);
  setup.block_tokens = block_tokens;
  return setup;
}

TestEngineSetup WithKvOf(DType dtype) {
  TestEngineSetup setup = Blocks(1);
  setup.kv_dtype = dtype;
  return setup;
}

class OtherSizeTest : public testing::TestWithParam<Sizes> {};

// Each twice: decode then has the whole blocks of its own size, and less than a block of the
// sender's may be missing in front. Sizes that the same kernels serve.
TEST_P(OtherSizeTest, ChangesNoAnswer) {
  TestEngineSetup decode = WithBlocksOf(GetParam().decode_block_tokens);
  decode.conversion_slots = GetParam().conversion_slots;
  HandoffPair pair(WithBlocksOf(GetParam().prefill_block_tokens), decode, GetParam().wire);
  const std::vector<EngineRequest> requests = Requests();
  for (const size_t which : {1, 4, 5}) {
    EngineRequest request = requests[which];
    const std::vector<TokenIds> expected = Unified(request);
    for (const uint64_t time : {0, 1}) {
      request.id = RequestId(2 * which + time);
      const auto run = pair.Start(request);
      ASSERT_TRUE(run.ok()) << run.status();
      pair.Continue(**run);
      ASSERT_EQ(pair.AwaitEnd(**run), absl::OkStatus());
      EXPECT_EQ(AllChoices(**run), expected) << "request " << which << " time " << time;
    }
  }
  pair.decode().Settle();
  EXPECT_TRUE(pair.prefill().AtRest());
  EXPECT_TRUE(pair.decode().AtRest());
}

INSTANTIATE_TEST_SUITE_P(All, OtherSizeTest,
                         testing::Values(Sizes{Wire::kTcp, 16, 64, 32},
                                         Sizes{Wire::kLoopback, 64, 16, 32},
                                         Sizes{Wire::kTcp, 32, 16, 2}),
                         [](const auto& info) {
                           const Sizes& sizes = info.param;
                           return fmt::format("{}_from_{}_to_{}_in_{}_slots",
                                              sizes.wire == Wire::kTcp ? "tcp" : "loopback",
                                              sizes.prefill_block_tokens, sizes.decode_block_tokens,
                                              sizes.conversion_slots);
                         });

// A token's K or V of one head, in one layer.
using KvRow = std::vector<double>;

// Of the whole pool. What lies where nothing was written may be NaN, which does not compare.
std::vector<KvRow> RowsOf(TestEngine& engine) {
  const std::span<const std::byte> memory = engine->kv_memory();
  std::vector<std::byte> bytes(memory.size());
  const auto stream = engine.device().NewStream();
  EXPECT_TRUE(stream.ok() && (*stream)->Copy(bytes, memory).ok() && (*stream)->Synchronize().ok());
  const auto width = static_cast<size_t>(engine.layout().head_dim);
  std::vector<KvRow> rows(bytes.size() / width / static_cast<size_t>(SizeOf(engine.layout().dtype)),
                          KvRow(width));
  for (size_t i = 0; i < rows.size() * width; ++i) {
    const double value =
        reference::Load(engine.layout().dtype, bytes.data(), static_cast<int64_t>(i));
    rows[i / width][i % width] = std::isnan(value) ? std::numeric_limits<double>::max() : value;
  }
  return rows;
}

using Types = std::pair<DType, DType>;
class OtherTypeTest : public testing::TestWithParam<Types> {};

// Whatever the prefill worker writes into its pool comes into the decode worker's, value for value.
TEST_P(OtherTypeTest, EveryNumberArrivesAsItWas) {
  const auto [from, to] = GetParam();
  HandoffPair pair(WithKvOf(from), WithKvOf(to), Wire::kTcp);
  constexpr int32_t kPromptTokens = 40;
  // Nobody else's: what older tests left in this memory is none of these rows.
  const auto seed = static_cast<uint64_t>(from) * 16 + static_cast<uint64_t>(to) + 100;
  const std::vector<KvRow> before = RowsOf(pair.prefill());
  const auto run = pair.Start(Greedy(1, RandomPrompt(seed, kPromptTokens, kVocabSize), 4));
  ASSERT_TRUE(run.ok()) << run.status();
  pair.Continue(**run);
  ASSERT_EQ(pair.AwaitEnd(**run), absl::OkStatus());
  EXPECT_EQ((*run)->token_ids().size(), 4u);
  const std::vector<KvRow> sent = RowsOf(pair.prefill());
  const std::vector<KvRow> there = RowsOf(pair.decode());
  const std::set<KvRow> arrived(there.begin(), there.end());
  int64_t written = 0;
  for (size_t i = 0; i < sent.size(); ++i) {
    if (sent[i] == before[i]) continue;
    ++written;
    ASSERT_TRUE(arrived.contains(sent[i])) << "row " << i;
  }
  const KvLayout& layout = pair.prefill().layout();
  EXPECT_EQ(written, int64_t{2} * layout.num_layers * layout.num_kv_heads * kPromptTokens);
}

INSTANTIATE_TEST_SUITE_P(
    Exact, OtherTypeTest,
    testing::Values(Types{DType::kF8E4M3, DType::kBF16}, Types{DType::kF8E4M3, DType::kF16},
                    Types{DType::kF8E4M3, DType::kF32}, Types{DType::kBF16, DType::kF32},
                    Types{DType::kF16, DType::kF32}),
    [](const auto& info) {
      return fmt::format("{}_to_{}", Name(info.param.first), Name(info.param.second));
    });

TEST(OtherLayoutTest, WhatWouldBeRoundedIsRefusedWithBothTypes) {
  TestEngine decode([] {
    TestEngineSetup setup = Blocks(1);
    setup.role = Role::kDecode;
    return setup;
  }());
  KvLayout other = decode.layout();
  other.dtype = DType::kF32;
  const absl::Status refused = decode.ReserveFor(Requests()[0], other).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  for (const char* type : {"dtype=f32", "dtype=bf16"}) {
    EXPECT_NE(refused.message().find(type), absl::string_view::npos) << refused;
  }
}

}  // namespace
}  // namespace tandem::device_handoff_test
