// The files that a prefill worker leaves of the KV of its hand-offs.

#include "engine/handoff/kv_dumper.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/handoff_pair.h"

namespace tandem::kv_dumper_test {
namespace {

namespace fs = std::filesystem;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr KvLayout kDumperLayout = {
    .num_layers = 2, .num_kv_heads = 2, .head_dim = 64, .block_tokens = 16, .dtype = DType::kBF16};

class KvDumperTest : public testing::Test {
 protected:
  KvDumperTest() {
    directory_ = fs::path(testing::TempDir()) /
                 testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(directory_);
    fs::create_directory(directory_);
  }
  ~KvDumperTest() override { fs::remove_all(directory_); }

  std::unique_ptr<KvDumper> Open(uint64_t most_bytes = 1 << 20) {
    auto dumper = KvDumper::Open(
        {.directory = directory_.string(), .most_bytes = most_bytes, .layout = kDumperLayout});
    EXPECT_TRUE(dumper.ok()) << dumper.status();
    return *std::move(dumper);
  }
  // One extent of each layer.
  std::unique_ptr<KvDumpBuffer> Buffer(const KvDumper& dumper) const {
    std::unique_ptr<KvDumpBuffer> buffer = dumper.NewBuffer(9);
    for (const uint32_t layer : {0u, 1u}) {
      const PostedExtent extent = {.layer = layer, .payload = extent_};
      buffer->Add({&extent, 1});
    }
    return buffer;
  }
  static KvDumpHeader Header(const std::string& id) {
    return {.prompt_tokens = 9, .codec = "raw", .request_id = id};
  }
  static KvDumpCounts Counts(const KvDumper& dumper) {
    EngineStats stats;
    dumper.AddTo(stats);
    return stats.kv_dumps;
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_)) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }
  absl::StatusOr<KvDump> Read(const std::string& name) const {
    std::ifstream in(directory_ / name, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    return ParseKvDump(std::as_bytes(std::span(bytes)));
  }

  fs::path directory_;
  const std::vector<std::byte> extent_ =
      std::vector<std::byte>(static_cast<size_t>(kDumperLayout.ExtentBytes()));
};

TEST_F(KvDumperTest, AFileIsNamedByItsRequestAndCanBeRead) {
  {
    const auto dumper = Open();
    dumper->Write(Header("mine"), Buffer(*dumper));
  }
  EXPECT_THAT(Files(), ElementsAre("mine.kv"));
  EXPECT_EQ(fs::status(directory_ / "mine.kv").permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
  const auto dump = Read("mine.kv");
  ASSERT_TRUE(dump.ok()) << dump.status();
  EXPECT_EQ(dump->header.request_id, "mine");
  EXPECT_EQ(dump->header.layout, kDumperLayout);
  EXPECT_THAT(dump->layers, Each(KvLayerParts{.k = {.kv_bytes = 9 * 256, .wire_bytes = 16 * 256},
                                              .v = {.kv_bytes = 9 * 256, .wire_bytes = 16 * 256},
                                              .blocks = 1,
                                              .raw_blocks = 1}));
}

TEST_F(KvDumperTest, NoNameLeavesTheDirectory) {
  EXPECT_EQ(KvDumpFileName("a-B_9.x"), "a-B_9.x.kv");
  for (const std::string id : {"../../etc/passwd", "/abs", "..", ".hidden", "a/b", "a\\b", ""}) {
    const std::string name = KvDumpFileName(id);
    EXPECT_EQ(fs::path(name).filename(), name) << id;
    EXPECT_FALSE(name.starts_with('.')) << id;
    EXPECT_TRUE(name.ends_with(".kv")) << id;
  }
  EXPECT_NE(KvDumpFileName("a/b"), KvDumpFileName("a_b"));
  EXPECT_NE(KvDumpFileName("a/b"), KvDumpFileName("a\\b"));
  EXPECT_LE(KvDumpFileName(std::string(5000, 'a')).size(), 128u);
}

TEST_F(KvDumperTest, TheLimitHoldsForAllFilesTogetherAndAcrossProcesses) {
  const uint64_t each = 2 * (extent_.size() + kKvDumpRecordBytes) + kKvDumpHeaderBytes + 1;
  {
    const auto dumper = Open(2 * each);
    for (const std::string id : {"a", "b", "c"}) dumper->Write(Header(id), Buffer(*dumper));
  }
  EXPECT_THAT(Files(), UnorderedElementsAre("a.kv", "b.kv"));
  const auto next = Open(2 * each);
  EXPECT_EQ(Counts(*next).bytes, 2 * each);
  next->Write(Header("d"), Buffer(*next));
  EXPECT_EQ(Counts(*next).skipped, 1u);
  EXPECT_THAT(Files(), SizeIs(2));
}

TEST_F(KvDumperTest, AFileThatReplacesAnotherGivesItsRoomBack) {
  const uint64_t each = 2 * (extent_.size() + kKvDumpRecordBytes) + kKvDumpHeaderBytes + 1;
  {
    const auto dumper = Open(10 * each);
    dumper->Write(Header("a"), Buffer(*dumper));
    dumper->Write(Header("a"), Buffer(*dumper));
  }
  EXPECT_EQ(Counts(*Open()).bytes, each);
}

TEST_F(KvDumperTest, WhatIsNeverWrittenGivesItsRoomBack) {
  const auto dumper = Open();
  { const auto buffer = Buffer(*dumper); }
  EXPECT_EQ(Counts(*dumper).bytes, 0u);
  dumper->Write(Header("empty"), dumper->NewBuffer(9));
  EXPECT_EQ(Counts(*dumper).skipped, 0u) << "nothing was sent";
  EXPECT_THAT(Files(), IsEmpty());
}

TEST_F(KvDumperTest, ADirectoryThatIsGoneCostsFilesAndNothingElse) {
  const auto dumper = Open();
  fs::remove_all(directory_);
  dumper->Write(Header("a"), Buffer(*dumper));
  while (Counts(*dumper).skipped == 0) std::this_thread::yield();
  EXPECT_EQ(Counts(*dumper).written, 0u);
  const auto none = KvDumper::Open({.directory = directory_.string(), .layout = kDumperLayout});
  EXPECT_EQ(none.status().code(), absl::StatusCode::kInvalidArgument);
}

// Through two engines: the file says what the hand-off's report says.
TEST_F(KvDumperTest, AHandOffLeavesAFileOfWhatItSent) {
  std::vector<KvReport> reports;
  {
    HandoffPair pair({.block_tokens = 64,
                      .wire_codec = CodecId::kMaskRice,
                      .kv_dump_directory = directory_.string()},
                     {.block_tokens = 64}, Wire::kLoopback);
    for (uint64_t id = 1; id < 30; ++id) {
      EngineRequest request = Greedy(id, RandomPrompt(id, 77, 288), 3);
      request.client_id = "request-" + std::to_string(id);
      if (id == 29) request.quality = KvQuality::kNear;
      const auto run = pair.Start(request);
      ASSERT_TRUE(run.ok()) << run.status();
      pair.Continue(**run);
      ASSERT_EQ(pair.AwaitEnd(**run), absl::OkStatus());
      reports.push_back((*run)->prefill.AwaitFinish().kv);
    }
  }
  EXPECT_THAT(Files(), SizeIs(29));
  EXPECT_EQ(reports.front().codec, "raw");
  EXPECT_EQ(reports[27].codec, "mask-rice");
  for (size_t i = 0; i < reports.size(); ++i) {
    const auto dump = Read("request-" + std::to_string(i + 1) + ".kv");
    ASSERT_TRUE(dump.ok()) << dump.status();
    EXPECT_EQ(dump->layers, reports[i].parts) << i;
    EXPECT_EQ(dump->header.codec, reports[i].codec);
    EXPECT_EQ(dump->header.prompt_tokens, 77);
  }
}

}  // namespace
}  // namespace tandem::kv_dumper_test
