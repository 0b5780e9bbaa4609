// Engines whose pools hold quantised KV: the same answer by every route within one type, more
// sequences in the same bytes, and KV that is rounded when it comes from a worker that keeps
// floats.

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvstore/kv_store.h"
#include "tests/support/handoff_pair.h"
#include "tests/support/late_device.h"

namespace tandem::quantised_kv_test {
namespace {

using ::testing::HasSubstr;
using TokenIds = std::vector<int32_t>;

constexpr const char* kCheckpoint = "models/sample";  // heads of 64
constexpr int32_t kVocab = 288;

TestEngineSetup SetupOf(DType dtype) {
  return {.checkpoint = kCheckpoint, .num_blocks = 256, .kv_dtype = dtype};
}

EngineRequest Request(uint64_t id, int32_t prompt_tokens) {
  return Greedy(id, RandomPrompt(id, prompt_tokens, kVocab), 16);
}

std::vector<EngineRequest> Requests() {
  std::vector<EngineRequest> requests;
  for (const int32_t tokens : {1, 7, 8, 40, 100, 270}) {
    requests.push_back(Request(static_cast<uint64_t>(tokens), tokens));
  }
  requests.back().sampling = {.temperature = 0.8f, .seed = 3};
  return requests;
}

std::vector<TokenIds> Await(std::vector<Recording>& recordings) {
  std::vector<TokenIds> answers;
  for (Recording& recording : recordings) {
    EXPECT_TRUE(recording.AwaitFinish().status.ok()) << recording.AwaitFinish().status;
    answers.push_back(recording.token_ids());
  }
  return answers;
}

std::vector<TokenIds> Together(TestEngine& engine, const std::vector<EngineRequest>& requests) {
  std::vector<Recording> recordings(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    engine->Submit(requests[i], recordings[i].NewSink());
  }
  return Await(recordings);
}

std::vector<TokenIds> Alone(const TestEngineSetup& setup,
                            const std::vector<EngineRequest>& requests) {
  TestEngine engine(setup);
  std::vector<TokenIds> answers;
  for (const EngineRequest& request : requests) {
    answers.push_back(Together(engine, {request}).front());
  }
  return answers;
}

TokenIds HandOver(HandoffPair& pair, const EngineRequest& request) {
  const auto run = pair.Start(request);
  if (!run.ok()) {
    ADD_FAILURE() << run.status();
    return {};
  }
  pair.Continue(**run);
  const absl::Status status = pair.AwaitEnd(**run);
  EXPECT_TRUE(status.ok()) << status;
  return (*run)->token_ids();
}

std::vector<TokenIds> HandOver(HandoffPair& pair, const std::vector<EngineRequest>& requests) {
  std::vector<TokenIds> answers;
  for (const EngineRequest& request : requests) answers.push_back(HandOver(pair, request));
  return answers;
}

class QuantisedKvTest : public testing::TestWithParam<DType> {};

TEST_P(QuantisedKvTest, TheAnswerIsTheSameWhateverTheRoute) {
  const std::vector<EngineRequest> requests = Requests();
  TestEngineSetup setup = SetupOf(GetParam());
  const std::vector<TokenIds> expected = Alone(setup, requests);
  for (const TokenIds& answer : expected) EXPECT_EQ(answer.size(), 16u);
  setup.num_threads = 2;
  setup.scheduler.max_prefill_chunk = 17;
  TestEngine together(setup);
  EXPECT_EQ(Together(together, requests), expected);
  for (const Wire wire : {Wire::kLoopback, Wire::kTcp}) {
    HandoffPair pair(setup, wire);
    EXPECT_EQ(HandOver(pair, requests), expected);
  }
  TestEngineSetup larger = setup;
  larger.block_tokens = 32;
  HandoffPair pair(setup, larger, Wire::kLoopback);
  EXPECT_EQ(HandOver(pair, requests), expected);
}

TEST_P(QuantisedKvTest, AnEvictedPromptGivesTheSameAnswerWhateverTheRoute) {
  std::vector<EngineRequest> requests = {Request(1, 100), Request(2, 270)};
  const TestEngineSetup setup = SetupOf(GetParam());
  const std::vector<TokenIds> whole = Alone(setup, requests);
  for (EngineRequest& request : requests) {
    request.eviction = {.policy = TokenEvictionPolicy::kRandom, .ratio = 3, .recent_tokens = 8};
  }
  const std::vector<TokenIds> expected = Alone(setup, requests);
  EXPECT_NE(expected, whole);
  HandoffPair pair(setup, Wire::kLoopback);
  EXPECT_EQ(HandOver(pair, requests), expected);
}

// It is sent as it lies, even where codecs are named and loss is allowed.
TEST_P(QuantisedKvTest, NoCodecTouchesIt) {
  TestEngineSetup setup = SetupOf(GetParam());
  setup.block_tokens = 64;
  setup.wire_codec = CodecId::kMaskRice;
  HandoffPair pair(setup, Wire::kLoopback);
  const EngineRequest exact = Request(5, 128);
  EngineRequest compact = exact;
  compact.quality = KvQuality::kCompact;
  const TokenIds expected = Alone(setup, {exact}).front();
  for (uint64_t id = 1; id < 12; ++id) HandOver(pair, Request(100 + id, 128));
  EXPECT_EQ(HandOver(pair, exact), expected);
  EXPECT_EQ(HandOver(pair, compact), expected);
  for (const WireCodecStats& codec : pair.prefill()->stats().wire_codecs) {
    EXPECT_EQ(codec.streams, 0u) << codec.name;
  }
}

// The sequences that one step takes in when more wait than the pool has room for.
int32_t Admitted(DType dtype, int64_t pool_bytes) {
  KvLayout layout = TestEngine(SetupOf(dtype)).layout();
  TestEngineSetup setup = SetupOf(dtype);
  setup.num_blocks = static_cast<int32_t>(pool_bytes / layout.BlockBytes());
  setup.scheduler = {.max_step_tokens = 8192, .max_sequences = 512};
  TestEngine engine(setup);
  engine.gate().Allow(0);
  std::vector<Recording> recordings(500);
  const auto submit = [&](size_t i) {
    engine->Submit(Greedy(i + 1, RandomPrompt(i + 1, 6, kVocab), 2), recordings[i].NewSink());
  };
  submit(0);
  engine.gate().AwaitHeld();
  for (size_t i = 1; i < recordings.size(); ++i) submit(i);  // the next step finds all of them
  engine.gate().Allow(1);
  engine.gate().AwaitHeld();
  engine.gate().Allow(1);
  engine.gate().AwaitHeld();
  const SchedulerStats stats = engine->stats().scheduler;
  EXPECT_GT(stats.waiting, 0);
  engine.gate().Open();
  Await(recordings);
  return stats.prefilling + stats.running;
}

TEST(QuantisedPoolTest, TheSameBytesHoldMoreSequences) {
  const int64_t bytes = 100 * TestEngine(SetupOf(DType::kBF16)).layout().BlockBytes();
  const int32_t floats = Admitted(DType::kBF16, bytes);
  EXPECT_GE(floats, 90);
  RecordProperty("bf16", floats);
  for (const auto& [dtype, times] :
       {std::pair(DType::kK8V8, 1.9), {DType::kK6V5, 2.5}, {DType::kK4V3, 3.0}}) {
    const int32_t admitted = Admitted(dtype, bytes);
    EXPECT_GE(admitted, times * floats) << Name(dtype);
    RecordProperty(std::string(Name(dtype)), admitted);
  }
}

TEST(QuantisedPoolTest, AGpuRefusesItAtTheStart) {
  LateDevice gpu;
  KvLayout layout = TestEngine(SetupOf(DType::kK4V3)).layout();
  const absl::Status status = CheckKvType(layout, gpu);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("k4v3"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("--kv-dtype bf16, f16, f8e4m3 or f32"));
  const auto stream = gpu.NewStream();
  EXPECT_EQ(KvStore::Create({.layout = layout, .num_blocks = 4}, gpu, **stream, [] {}).status(),
            status);
  layout.dtype = DType::kF8E4M3;
  EXPECT_EQ(CheckKvType(layout, gpu), absl::OkStatus());
}

// Extents of the first layer that hold anything.
std::multiset<std::string> FirstLayer(TestEngine& engine, int32_t num_blocks) {
  const auto bytes = static_cast<size_t>(engine.layout().ExtentBytes());
  std::multiset<std::string> extents;
  for (size_t block = 0; block < static_cast<size_t>(num_blocks); ++block) {
    const auto extent = engine->kv_memory().subspan(block * bytes, bytes);
    extents.emplace(reinterpret_cast<const char*>(extent.data()), bytes);
  }
  extents.erase(std::string(bytes, '\0'));
  return extents;
}

// K and V of the first layer do not depend on the KV of other tokens: what a decode worker has of a
// prefill worker with f32 is then what a worker of its own type has of the same prompt.
TEST_P(QuantisedKvTest, KvThatComesAsFloatsIsRoundedAsItsOwn) {
  const EngineRequest request = Request(3, 64);
  const TestEngineSetup own = SetupOf(GetParam());
  TestEngine unified(own);
  Together(unified, {request});
  HandoffPair pair(SetupOf(DType::kF32), own, Wire::kLoopback);
  HandOver(pair, request);
  const std::multiset<std::string> expected = FirstLayer(unified, own.num_blocks);
  const std::multiset<std::string> received = FirstLayer(pair.decode(), own.num_blocks);
  int same = 0;
  for (const std::string& extent : received) same += expected.contains(extent) ? 1 : 0;
  EXPECT_GE(same, 64 / own.block_tokens);
}

// From every type of float, in blocks of another size, encoded or not, once more from the cache.
TEST_P(QuantisedKvTest, AWorkerThatKeepsFloatsHandsOver) {
  const EngineRequest request = Request(5, 100);
  TestEngineSetup decode = SetupOf(GetParam());
  decode.block_tokens = 16;
  for (const DType floats : {DType::kBF16, DType::kF16, DType::kF32}) {
    SCOPED_TRACE(Name(floats));
    TestEngineSetup prefill = SetupOf(floats);
    prefill.block_tokens = 64;
    prefill.codec_threads = 0;
    HandoffPair plain(prefill, decode, Wire::kLoopback);
    const TokenIds answer = HandOver(plain, request);
    EXPECT_EQ(answer.size(), 16u);
    EXPECT_EQ(HandOver(plain, request), answer);
    prefill.codec_threads = 2;
    prefill.wire_codec = CodecId::kMaskRice;
    HandoffPair encoded(prefill, decode, Wire::kTcp);
    for (uint64_t id = 1; id < 20; ++id) HandOver(encoded, Request(100 + id, 128));
    EXPECT_EQ(HandOver(encoded, request), answer);
    uint64_t streams = 0;
    for (const WireCodecStats& codec : encoded.prefill()->stats().wire_codecs) {
      if (codec.codec == CodecId::kMaskRice) streams += codec.streams;
    }
    EXPECT_GT(streams, 0u) << "nothing was encoded";
  }
}

TEST_P(QuantisedKvTest, ItIsNotHandedToAWorkerThatKeepsFloats) {
  HandoffPair pair(SetupOf(GetParam()), SetupOf(DType::kF32), Wire::kLoopback);
  const absl::Status status = pair.Start(Request(5, 20)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(Name(GetParam()))));
}

INSTANTIATE_TEST_SUITE_P(Types, QuantisedKvTest,
                         testing::Values(DType::kK8V8, DType::kK6V5, DType::kK4V3),
                         [](const auto& info) { return std::string(Name(info.param)); });

}  // namespace
}  // namespace tandem::quantised_kv_test
