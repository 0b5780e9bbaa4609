// A model that overflows for one request fails that request, not those that share its step.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "model/checkpoint/safetensors.h"
#include "tests/support/recording_sink.h"
#include "tests/support/test_engine.h"
#include "tests/support/tree.h"

namespace tandem::bad_row_test {
namespace {

const std::string kSource = TreePath("tests/golden/checkpoints/llama2");
constexpr int32_t kPoison = 17;  // the token whose embedding is NaN
constexpr int32_t kVocabSize = 288;

std::vector<std::byte> ReadFile(const std::filesystem::path& path) {
  std::vector<std::byte> bytes(std::filesystem::file_size(path));
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

// A copy of the checkpoint in which one row of the embedding is NaN in every dtype: all ones.
std::string PoisonedCheckpoint() {
  const std::filesystem::path copy = std::filesystem::path(testing::TempDir()) / "poisoned";
  std::filesystem::remove_all(copy);
  std::filesystem::copy(kSource, copy);
  const std::filesystem::path file = copy / "model.safetensors";
  const std::vector<std::byte> bytes = ReadFile(file);
  const auto entries = ParseSafetensorsHeader(bytes, bytes.size());
  EXPECT_TRUE(entries.ok()) << entries.status();
  for (const SafetensorsEntry& entry : *entries) {
    if (entry.name != "model.embed_tokens.weight") continue;
    const auto row_bytes = (entry.end - entry.begin) / static_cast<uint64_t>(entry.shape[0]);
    std::fstream out(file, std::ios::binary | std::ios::in | std::ios::out);
    out.seekp(static_cast<std::streamoff>(entry.begin + kPoison * row_bytes));
    out << std::string(row_bytes, '\xff');
  }
  return copy;
}

std::vector<int32_t> CleanPrompt(uint64_t seed, int32_t count) {
  std::vector<int32_t> prompt = RandomPrompt(seed, count, kVocabSize);
  for (int32_t& id : prompt) id = id == kPoison ? id + 1 : id;
  return prompt;
}

TEST(BadRowTest, FailsItsOwnRequestOnly) {
  std::vector<EngineRequest> good;
  for (uint64_t id = 1; id <= 4; ++id) {
    good.push_back(Greedy(id, CleanPrompt(id, 5 + static_cast<int32_t>(id)), 6));
    good.back().sampling = {.temperature = 0.8f, .repetition_penalty = 1.2f, .seed = id};
  }
  EngineRequest bad = Greedy(9, CleanPrompt(9, 6), 6);
  bad.prompt.back() = kPoison;

  TestEngine clean({});
  TestEngine poisoned({.checkpoint = PoisonedCheckpoint()});
  poisoned.gate().Allow(0);
  Recording first;
  poisoned->Submit(Greedy(8, CleanPrompt(8, 3), 2), first.NewSink());
  poisoned.gate().AwaitHeld();  // what follows shares the next step
  std::vector<Recording> recordings(good.size());
  for (size_t i = 0; i < 2; ++i) poisoned->Submit(good[i], recordings[i].NewSink());
  Recording failed;
  poisoned->Submit(bad, failed.NewSink());
  for (size_t i = 2; i < good.size(); ++i) poisoned->Submit(good[i], recordings[i].NewSink());
  poisoned.gate().Open();

  EXPECT_EQ(failed.AwaitFinish().status.code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(failed.token_ids().empty());
  EXPECT_EQ(failed.num_finishes(), 1);
  EXPECT_TRUE(first.AwaitFinish().status.ok());
  for (size_t i = 0; i < good.size(); ++i) {
    EXPECT_TRUE(recordings[i].AwaitFinish().status.ok()) << recordings[i].AwaitFinish().status;
    Recording expected;
    clean->Submit(good[i], expected.NewSink());
    EXPECT_TRUE(expected.AwaitFinish().status.ok());
    EXPECT_EQ(recordings[i].token_ids(), expected.token_ids());
  }
  EXPECT_TRUE(poisoned.AtRest());
}

TEST(BadRowTest, AloneItFailsToo) {
  TestEngine poisoned({.checkpoint = PoisonedCheckpoint()});
  Recording failed;
  poisoned->Submit(Greedy(1, {1, kPoison}, 6), failed.NewSink());
  EXPECT_EQ(failed.AwaitFinish().status.code(), absl::StatusCode::kInternal);
  Recording next;
  poisoned->Submit(Greedy(2, {1, 2}, 6), next.NewSink());
  EXPECT_TRUE(next.AwaitFinish().status.ok());
  EXPECT_TRUE(poisoned.AtRest());
}

}  // namespace
}  // namespace tandem::bad_row_test
