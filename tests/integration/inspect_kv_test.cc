// `tandem inspect kv` over real processes.

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/json.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/shell.h"
#include "tests/support/test_cluster.h"
#include "tests/support/tree.h"

namespace tandem::inspect_kv_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int32_t kInspectedTokens = 300;

// A prompt that no other seed has.
v1::GenerateRequest InspectedRequest(int32_t seed, const std::string& id) {
  v1::GenerateRequest request = TextRequest("", v1::ROUTE_DISAGGREGATED, 4);
  for (int32_t i = 0; i < kInspectedTokens; ++i) {
    request.mutable_token_ids()->add_ids(300 + (seed * 131 + i * 7) % 1000);
  }
  request.set_request_id(id);
  return request;
}

// KV is encoded once the tables of the codec are made, of the first 1,024 tokens.
void MakeTablesIn(TestCluster& cluster) {
  for (int32_t seed = 1; seed < 8; ++seed) {
    const Outcome outcome = Ask(cluster.client(), InspectedRequest(seed, ""));
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  }
}

TEST(InspectKvTest, ARequestShowsWhatItsKvTookPerLayer) {
  TestCluster cluster(
      {.worker_flags = {"--kv-transport=tcp", "--kv-codec=mask-rice", "--prefix-cache=off"}});
  MakeTablesIn(cluster);
  const std::string server = " --server " + cluster.address();
  const Outcome outcome = Ask(cluster.client(), InspectedRequest(100, "exact"));
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  const v1::KvBytes& kv = outcome.generation.choices[0].finish.kv_bytes();
  ASSERT_EQ(kv.codec(), "mask-rice");

  const CommandResult json = Shell("inspect kv exact --json" + server);
  ASSERT_EQ(json.exit_status, 0) << json.output;
  const auto inspected = ParseJson(json.output);
  EXPECT_EQ(inspected["kv_quality"], "exact");
  EXPECT_EQ(inspected["prompt_tokens"], kInspectedTokens);
  const auto& handoff = inspected["handoff"];
  EXPECT_EQ(handoff["bytes"]["wire"], kv.wire());
  EXPECT_EQ(handoff["bytes"]["codec"], "mask-rice");
  const auto& totals = handoff["totals"];
  EXPECT_EQ(totals["k_kv_bytes"].get<uint64_t>() + totals["v_kv_bytes"].get<uint64_t>(), kv.raw());
  EXPECT_EQ(totals["k_wire_bytes"].get<uint64_t>() + totals["v_wire_bytes"].get<uint64_t>() +
                (totals["blocks"].get<uint64_t>() + 1) * 64,
            kv.wire());

  const CommandResult text = Shell("inspect kv exact" + server);
  EXPECT_EQ(text.exit_status, 0);
  EXPECT_THAT(text.output, AllOf(StartsWith("KV of request exact from prefill-0 to decode-0\n"),
                                 HasSubstr("class exact, codec mask-rice"), HasSubstr("\n    0 K "),
                                 HasSubstr("\n  all K "), HasSubstr("█")));

  v1::GenerateRequest tiny = InspectedRequest(101, "tiny");
  tiny.set_kv_quality("tiny");
  ASSERT_TRUE(Ask(cluster.client(), tiny).status.ok());
  const auto evicted = ParseJson(Shell("inspect kv tiny --json" + server).output);
  EXPECT_EQ(evicted["handoff"]["evicted_tokens"], 39);
  EXPECT_EQ(evicted["handoff"]["bytes"]["codec"], "step0.6");

  v1::GenerateRequest unified = InspectedRequest(102, "unified");
  unified.set_route(v1::ROUTE_UNIFIED);
  ASSERT_TRUE(Ask(cluster.client(), unified).status.ok());
  const CommandResult none = Shell("inspect kv unified 2>&1 >/dev/null" + server);
  EXPECT_EQ(none.exit_status, 1);
  EXPECT_THAT(none.output, StartsWith("error: FAILED_PRECONDITION: request_id=unified: its KV"));
  EXPECT_THAT(Shell("inspect kv nobody 2>&1 >/dev/null" + server).output,
              StartsWith("error: NOT_FOUND: request_id=nobody"));

  cluster.WaitFor("K and V apart in the status", [](const v1::GetStatusResponse& status) {
    const v1::HandoffUse& use = FindWorker(status, "prefill-0")->load().handoffs();
    return use.codec_k_wire_bytes() > 0 && use.codec_v_wire_bytes() > 0 &&
           use.codec_k_wire_bytes() + use.codec_v_wire_bytes() == use.codec_wire_bytes() &&
           use.codec_k_kv_bytes() + use.codec_v_kv_bytes() == use.codec_kv_bytes();
  });
}

// The file of a hand-off says what the router says of it, and nothing of the prompt.
TEST(InspectKvTest, AFileOfTheKvShowsTheSame) {
  namespace fs = std::filesystem;
  const fs::path dumps = fs::path(testing::TempDir()) / fmt::format("inspect_kv.{}", getpid());
  fs::create_directory(dumps);
  TestCluster cluster(
      {.worker_flags = {"--kv-transport=tcp", "--kv-codec=mask-rice", "--prefix-cache=off",
                        "--kv-dump=" + dumps.string(), "--kv-dump-bytes=16MiB"}});
  const std::string server = " --server " + cluster.address();
  MakeTablesIn(cluster);
  ASSERT_TRUE(Ask(cluster.client(), InspectedRequest(100, "../dumped")).status.ok());
  const v1::GenerateRequest text = [] {
    v1::GenerateRequest request =
        TextRequest("It was a fine morning, and the ladies", v1::ROUTE_DISAGGREGATED, 4);
    request.set_request_id("with-text");
    return request;
  }();
  ASSERT_TRUE(Ask(cluster.client(), text).status.ok());
  cluster.WaitFor("the files", [](const v1::GetStatusResponse& status) {
    const v1::HandoffUse& use = FindWorker(status, "prefill-0")->load().handoffs();
    return use.kv_dumps() == 9 && use.kv_dumps_skipped() == 0 && use.kv_dump_bytes() > 0;
  });
  EXPECT_FALSE(fs::exists(dumps.parent_path() / "dumped.kv")) << "it left its directory";
  std::string file;
  for (const auto& entry : fs::directory_iterator(dumps)) {
    EXPECT_EQ(entry.path().extension(), ".kv") << entry.path();
    const std::string name = entry.path().filename().string();
    if (name.find("dumped") != std::string::npos) file = entry.path().string();
  }
  const auto of_file = ParseJson(Shell("inspect kv --json --file " + file).output);
  const auto of_router = ParseJson(Shell("inspect kv ../dumped --json" + server).output);
  EXPECT_EQ(of_file["request_id"], "../dumped");
  EXPECT_EQ(of_file["prompt_tokens"], of_router["prompt_tokens"]);
  EXPECT_EQ(of_file["kv_quality"], "exact");
  EXPECT_EQ(of_file["handoff"]["layers"], of_router["handoff"]["layers"]);
  EXPECT_EQ(of_file["handoff"]["bytes"]["codec"], "mask-rice");
  EXPECT_THAT(Shell("inspect kv --file " + file).output,
              AllOf(StartsWith("KV of request ../dumped\n"), HasSubstr("\n  all K ")));

  std::ifstream in(dumps / "with-text.kv", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  EXPECT_GT(bytes.size(), 1000u);
  EXPECT_THAT(bytes, Not(HasSubstr("fine morning")));

  fs::resize_file(file, fs::file_size(file) - 1);
  const CommandResult cut = Shell("inspect kv --file " + file + " 2>&1 >/dev/null");
  EXPECT_EQ(cut.exit_status, 1);
  EXPECT_THAT(cut.output, AllOf(StartsWith("error: DATA_LOSS: " + file), HasSubstr("cut off")));
  fs::remove_all(dumps);
}

TEST(InspectKvTest, WrongUseIsNamed) {
  EXPECT_THAT(Shell("inspect kv 2>&1 >/dev/null").output,
              HasSubstr("either the id of a request or --file F"));
  EXPECT_THAT(Shell("inspect kv mine --file x 2>&1 >/dev/null").output,
              HasSubstr("either the id of a request or --file F"));
  EXPECT_THAT(Shell("inspect kv --file /nowhere 2>&1 >/dev/null").output,
              StartsWith("error: NOT_FOUND: /nowhere: no such file"));
  EXPECT_THAT(Shell("inspect kv --file / 2>&1 >/dev/null").output, HasSubstr("/: not a file"));
  EXPECT_THAT(Shell("inspect kv --file /proc/self/exe 2>&1 >/dev/null").output,
              HasSubstr("no dump of KV"));
  const CommandResult no_directory =
      Shell("worker --role prefill --model " + SampleModel() +
            " --kv-dump /nowhere --router 127.0.0.1:1 2>&1 >/dev/null");
  EXPECT_EQ(no_directory.exit_status, 1);
  EXPECT_THAT(no_directory.output, HasSubstr("--kv-dump=/nowhere: no file can be written there"));
}

}  // namespace
}  // namespace tandem::inspect_kv_test
