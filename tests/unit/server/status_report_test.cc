#include "server/status_report.h"

#include <algorithm>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace tandem {
namespace {

using ::testing::HasSubstr;

v1::GetStatusResponse Status() {
  v1::GetStatusResponse status;
  status.set_ready(true);
  status.add_routes(v1::ROUTE_UNIFIED);
  status.set_model("sample");
  v1::WorkerStatus& idle = *status.add_workers();
  idle.set_name("unified-0");
  idle.set_total_blocks(64);
  idle.set_free_blocks(64);
  v1::WorkerStatus& busy = *status.add_workers();
  busy.set_name("decode-0");
  busy.set_total_blocks(100);
  busy.set_free_blocks(17);
  busy.set_device("cuda:3");
  v1::KvUse& kv = *busy.mutable_kv();
  kv.set_cached_blocks(31);
  kv.set_idle_blocks(23);
  kv.set_shared_blocks(11);
  kv.set_pinned_blocks(5);
  kv.set_swapped_blocks(7);
  kv.set_host_budget_bytes(64000000);
  kv.set_host_used_bytes(1500000);
  kv.set_fragmentation(0.125);
  kv.set_hit_tokens(300);
  kv.set_query_tokens(400);
  kv.set_preempted_recompute(3);
  kv.set_preempted_swap(2);
  return status;
}

std::vector<std::string> Words(const std::string& table, const std::string& of) {
  const size_t begin = table.find(of);
  std::istringstream line(table.substr(begin, table.find('\n', begin) - begin));
  return {std::istream_iterator<std::string>(line), {}};
}

TEST(BlockTableTest, SaysWhereTheBlocksAre) {
  const std::string table = BlockTable(Status());
  EXPECT_THAT(Words(table, "decode-0"),
              testing::ElementsAre("decode-0", "100", "17", "31", "23", "11", "5", "7", "1.5/64.0",
                                   "12.5%", "75.0%", "5", "(2)"));
  EXPECT_THAT(Words(table, "unified-0"),
              testing::ElementsAre("unified-0", "64", "64", "0", "0", "0", "0", "0", "off", "0.0%",
                                   "-", "0", "(0)"));
}

TEST(WorkerTableTest, OneLinePerWorkerUnderTheRouters) {
  const std::string table = WorkerTable(Status());
  EXPECT_THAT(table, HasSubstr("ready: model sample"));
  EXPECT_THAT(table, HasSubstr("17/100"));
  EXPECT_THAT(Words(table, "decode-0"), testing::Contains("cuda:3"));
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 4);
}

TEST(WorkerTableTest, SaysWhatLossesCostOnceThereWereSome) {
  v1::GetStatusResponse status = Status();
  EXPECT_THAT(WorkerTable(status), testing::Not(HasSubstr("resumed")));
  status.mutable_resumes()->set_lost(7);
  status.mutable_resumes()->set_p99_ms(41.6);
  EXPECT_THAT(WorkerTable(status), HasSubstr("resumed: 7 after a loss, 0 away"));
  EXPECT_THAT(WorkerTable(status), HasSubstr("p99 42"));
  EXPECT_EQ(nlohmann::json::parse(StatusJson(status))["resumes"]["lost"], 7);
}

TEST(StatusJsonTest, HasTheBlocksOfEachWorker) {
  const auto json = nlohmann::json::parse(StatusJson(Status()));
  ASSERT_EQ(json["workers"].size(), 2u);
  EXPECT_EQ(json["workers"][1]["free_blocks"], 17);
  EXPECT_EQ(json["workers"][1]["device"], "cuda:3");
  const auto& kv = json["workers"][1]["kv"];
  EXPECT_EQ(kv["cached_blocks"], 31);
  EXPECT_EQ(kv["idle_blocks"], 23);
  EXPECT_EQ(kv["shared_blocks"], 11);
  EXPECT_EQ(kv["host_used_bytes"], 1500000);
  EXPECT_EQ(kv["preempted_swap"], 2);
  EXPECT_EQ(kv["hit_tokens"], 300);
}

}  // namespace
}  // namespace tandem
