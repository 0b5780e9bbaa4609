// The metrics under the names that dashboards for servers of language models read.

#include "server/admin/field_metrics.h"

#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/admin/exposition.h"
#include "server/admin/metrics_table.h"

namespace tandem::field_metrics_test {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

v1::WorkerLoad Load(int32_t total, int32_t free, int32_t idle) {
  v1::WorkerLoad load;
  load.set_running(3);
  load.set_waiting(2);
  load.set_total_blocks(total);
  load.set_free_blocks(free);
  load.mutable_kv()->set_idle_blocks(idle);
  load.set_block_tokens(16);
  load.set_prompt_tokens(70);
  load.set_output_tokens(7);
  load.mutable_kv()->set_query_tokens(100);
  load.mutable_kv()->set_hit_tokens(40);
  load.mutable_kv()->set_preempted_recompute(1);
  load.mutable_kv()->set_preempted_swap(4);
  return load;
}

std::string WorkerPage(const v1::WorkerLoad& load) {
  return Expose(WorkerFieldMetrics("sample", load), ExpositionFormat::kText);
}

TEST(FieldMetricsTest, AWorkerReportsItself) {
  const std::string page = WorkerPage(Load(100, 50, 25));
  for (const char* line : {"vllm:num_requests_running{model_name=\"sample\"} 3\n",
                           "vllm:num_requests_waiting{model_name=\"sample\"} 2\n",
                           "vllm:kv_cache_usage_perc{model_name=\"sample\"} 0.25\n",
                           "vllm:cache_config_info{model_name=\"sample\",block_size=\"16\",num_gpu_"
                           "blocks=\"100\"} 1\n",
                           "vllm:num_preemptions_total{model_name=\"sample\"} 5\n",
                           "vllm:prompt_tokens_total{model_name=\"sample\"} 70\n",
                           "vllm:generation_tokens_total{model_name=\"sample\"} 7\n",
                           "vllm:prefix_cache_queries_total{model_name=\"sample\"} 100\n",
                           "vllm:prefix_cache_hits_total{model_name=\"sample\"} 40\n"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
  EXPECT_THAT(page, Not(HasSubstr("time_to_first_token"))) << "only routers see whole requests";
}

TEST(FieldMetricsTest, AWorkerWithoutBlocksUsesNone) {
  EXPECT_THAT(WorkerPage(v1::WorkerLoad()),
              HasSubstr("vllm:kv_cache_usage_perc{model_name=\"sample\"} 0\n"));
}

class RouterFieldMetricsTest : public testing::Test {
 protected:
  std::string Page() const {
    return Expose(RouterFieldMetrics(status_, requests_), ExpositionFormat::kText);
  }
  void AddWorker(const v1::WorkerLoad& load) { *status_.add_workers()->mutable_load() = load; }

  RequestMetrics requests_{{.ttft = ModelTime(2000), .tpot = ModelTime(33)}};
  v1::GetStatusResponse status_;
};

TEST_F(RouterFieldMetricsTest, GaugesAreSumsOverTheFleet) {
  status_.set_model("sample");
  AddWorker(Load(100, 50, 25));
  AddWorker(Load(300, 25, 0));
  const std::string page = Page();
  EXPECT_THAT(page, HasSubstr("vllm:num_requests_running{model_name=\"sample\"} 6\n"));
  EXPECT_THAT(page, HasSubstr("vllm:kv_cache_usage_perc{model_name=\"sample\"} 0.75\n"));
  EXPECT_THAT(page, HasSubstr("block_size=\"16\",num_gpu_blocks=\"400\"} 1\n"));
}

// A sum over workers would fall when one leaves, which a scraper takes for a restart.
TEST_F(RouterFieldMetricsTest, CountersAreOfTheRouterAndNotOfItsWorkers) {
  AddWorker(Load(100, 50, 25));
  EXPECT_THAT(Page(), HasSubstr("vllm:prompt_tokens_total{model_name=\"\"} 0\n"));
  requests_.OnFirstToken("a", 12, milliseconds(3), TimePoint());
  EXPECT_THAT(Page(), HasSubstr("vllm:prompt_tokens_total{model_name=\"\"} 12\n"));
}

TEST_F(RouterFieldMetricsTest, BucketsEndAtTheLimitsThatRequestsShouldKeep) {
  requests_.OnFirstToken("a", 1, milliseconds(1999), TimePoint());
  requests_.OnFirstToken("b", 1, milliseconds(2400), TimePoint());
  const std::string page = Page();
  const std::string name = "vllm:time_to_first_token_seconds_bucket{model_name=\"\",le=";
  EXPECT_THAT(page, HasSubstr(name + "\"1.0\"} 0\n"));
  EXPECT_THAT(page, HasSubstr(name + "\"2.0\"} 1\n"));
  EXPECT_THAT(page, HasSubstr(name + "\"2.5\"} 2\n"));
  EXPECT_THAT(page,
              HasSubstr("vllm:inter_token_latency_seconds_bucket{model_name=\"\",le=\"0.033\"}"));
}

TEST_F(RouterFieldMetricsTest, EndsAreCountedByReasonAndByStatus) {
  requests_.OnEnd(absl::CancelledError(""));
  requests_.OnEnd(absl::ResourceExhaustedError(""));
  const std::string page = Page();
  EXPECT_THAT(page, HasSubstr("finished_reason=\"abort\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("finished_reason=\"error\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("finished_reason=\"stop\"} 0\n"));
  const std::string ends = Expose({{RequestEnds(requests_)}}, ExpositionFormat::kText);
  EXPECT_THAT(ends, HasSubstr("tandem_request_ends_total{code=\"CANCELLED\"} 1\n"));
  EXPECT_THAT(ends, HasSubstr("tandem_request_ends_total{code=\"RESOURCE_EXHAUSTED\"} 1\n"));
  EXPECT_THAT(ends, HasSubstr("tandem_request_ends_total{code=\"OK\"} 0\n"));
}

TEST_F(RouterFieldMetricsTest, EveryFamilyIsInTheListThatTheDocsAreMadeOf) {
  std::set<std::string> listed;
  for (const FieldMetric& metric : FieldMetrics()) listed.insert(std::string(metric.name));
  std::set<std::string> made = {RequestEnds(requests_).name};
  for (const MetricFamily& family : RouterFieldMetrics(status_, requests_))
    made.insert(family.name);
  EXPECT_EQ(made, listed);
}

// OpenMetrics names a counter's family without _total, so that name must be free.
TEST_F(RouterFieldMetricsTest, NoTwoFamiliesHaveOneNameInOpenMetrics) {
  std::set<std::string> names;
  for (const FieldMetric& metric : FieldMetrics()) names.insert(std::string(metric.name));
  for (const Metric& metric : Metrics()) names.insert(std::string(metric.name));
  for (const std::string& name : names) {
    if (!name.ends_with("_total")) continue;
    EXPECT_FALSE(names.contains(name.substr(0, name.size() - 6))) << name;
  }
}

}  // namespace
}  // namespace tandem::field_metrics_test
