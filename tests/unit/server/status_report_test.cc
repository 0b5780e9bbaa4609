#include "server/admin/status_report.h"

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/admin/status_json.h"

namespace tandem::status_report_test {
namespace {

using ::testing::HasSubstr;

// An idle unified worker and a busy decode worker.
v1::GetStatusResponse StatusWithoutLinks() {
  v1::GetStatusResponse status;
  status.set_ready(true);
  status.add_routes(v1::ROUTE_UNIFIED);
  status.set_model("sample");
  v1::WorkerStatus& idle = *status.add_workers();
  idle.set_name("unified-0");
  idle.mutable_load()->set_total_blocks(64);
  idle.mutable_load()->set_free_blocks(64);
  v1::WorkerStatus& busy = *status.add_workers();
  busy.set_name("decode-0");
  busy.mutable_load()->set_total_blocks(100);
  busy.mutable_load()->set_free_blocks(17);
  busy.set_device("cuda:3");
  v1::KvUse& kv = *busy.mutable_load()->mutable_kv();
  kv.set_cached_blocks(31);
  kv.set_idle_blocks(23);
  kv.set_shared_blocks(11);
  kv.set_pinned_blocks(5);
  kv.set_swapped_blocks(7);
  kv.set_host_budget_bytes(64000000);
  kv.set_host_used_bytes(1500000);
  kv.set_host_raw_bytes(1470);
  kv.set_host_stored_bytes(1000);
  kv.set_fragmentation(0.125);
  kv.set_hit_tokens(300);
  kv.set_query_tokens(400);
  kv.set_preempted_recompute(3);
  kv.set_preempted_swap(2);
  busy.set_alive(true);
  busy.mutable_load()->set_not_ready("no step for 5 s");
  v1::HandoffUse& handoffs = *busy.mutable_load()->mutable_handoffs();
  handoffs.set_reservations(2);
  handoffs.set_waiting_reservations(9);
  handoffs.set_draining_reservations(6);
  handoffs.set_unauthenticated_frames(4);
  handoffs.set_buffer_bytes(71303168);
  return status;
}

// These two, and a prefill worker with four links.
v1::GetStatusResponse Status() {
  v1::GetStatusResponse status = StatusWithoutLinks();
  v1::WorkerStatus& sender = *status.add_workers();
  sender.set_name("prefill-0");
  sender.set_alive(true);
  v1::LinkStatus& ring = *sender.mutable_load()->add_links();
  ring.set_peer("decode-0");
  ring.set_transport("shm");
  ring.set_probe_gb_per_s(4.25);
  ring.set_best_probe_gb_per_s(12.5);
  ring.set_probe_failure("DEADLINE_EXCEEDED: too slow");
  ring.set_setup_us(180);
  ring.set_operation_us(1.5);
  v1::LinkStatus& wire = *sender.mutable_load()->add_links();
  wire.set_peer("decode-0");
  wire.set_transport("tcp");
  wire.set_in_use(true);
  wire.set_probe_gb_per_s(0.0125);
  wire.set_best_probe_gb_per_s(0.000213);
  wire.set_gb_per_s(0.0000021);
  wire.set_bytes(123456789);
  wire.set_bytes_in_flight(1500000);
  wire.set_resent_frames(3);
  wire.set_fallbacks(1);
  wire.set_fallback_reason("refused");
  wire.set_failure("the connection was cut");
  v1::LinkStatus& far = *sender.mutable_load()->add_links();
  far.set_peer("decode-0");
  far.set_transport("nccl");
  far.set_unreachable("another host");
  v1::LinkStatus& left_out = *sender.mutable_load()->add_links();
  left_out.set_transport("ipc");
  left_out.set_failure("no memory to share");
  return status;
}

std::vector<std::string> Words(const std::string& table, const std::string& of) {
  const size_t begin = table.find(of);
  std::istringstream line(table.substr(begin, table.find('\n', begin) - begin));
  return {std::istream_iterator<std::string>(line), {}};
}

TEST(BlockTableTest, SaysWhereTheBlocksAre) {
  const std::string table = BlocksTable(Status());
  EXPECT_THAT(Words(table, "decode-0"),
              testing::ElementsAre("decode-0", "100", "17", "31", "23", "11", "5", "7", "1.5/64.0",
                                   "1.47x", "12.5%", "75.0%", "5", "(2)"));
  EXPECT_THAT(Words(table, "unified-0"),
              testing::ElementsAre("unified-0", "64", "64", "0", "0", "0", "0", "0", "off", "0.0%",
                                   "-", "0", "(0)"));
}

TEST(WorkerTableTest, TenantsHaveALineEach) {
  v1::GetStatusResponse status = Status();
  EXPECT_THAT(WorkerTable(status), testing::Not(HasSubstr("TENANT")));
  v1::TenantUse& tenant = *status.mutable_admission()->add_tenants();
  tenant.set_tenant("research");
  tenant.set_in_flight(3);
  tenant.set_admitted(40);
  tenant.set_refused(5);
  tenant.set_tokens(6000);
  status.mutable_admission()->add_tenants()->set_admitted(7);
  const std::string table = WorkerTable(status);
  EXPECT_THAT(Words(table, "research"), testing::ElementsAre("research", "3", "40", "5", "6000"));
  EXPECT_THAT(Words(table, "(others)"), testing::ElementsAre("(others)", "0", "7", "0", "0"));
}

TEST(WorkerTableTest, OneLinePerWorkerUnderTheRouters) {
  const std::string table = WorkerTable(Status());
  EXPECT_THAT(table, HasSubstr("ready: model sample"));
  EXPECT_THAT(table, HasSubstr("17/100"));
  EXPECT_THAT(Words(table, "decode-0"), testing::Contains("cuda:3"));
  EXPECT_THAT(Words(table, "decode-0"), testing::Contains("not-ready"));
  EXPECT_THAT(Words(table, "prefill-0"), testing::Contains("alive"));
  EXPECT_THAT(Words(table, "unified-0"), testing::Contains("lost"));
  EXPECT_THAT(table, HasSubstr("decode-0 is not ready: no step for 5 s\n"));
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 6);
}

TEST(WorkerTableTest, AWorkerThatStillStartsIsCalledSo) {
  v1::GetStatusResponse status = Status();
  status.mutable_workers(2)->mutable_load()->set_starting(true);
  EXPECT_THAT(Words(WorkerTable(status), "prefill-0"), testing::Contains("starting"));
}

TEST(WorkerTableTest, AWorkerThatDrainsIsCalledSo) {
  v1::GetStatusResponse status = Status();
  status.mutable_workers(2)->set_draining(true);
  EXPECT_THAT(Words(WorkerTable(status), "prefill-0"), testing::Contains("draining"));
}

TEST(CostTableTest, OneLinePerWorkerWithWhatItsStepsTake) {
  v1::GetStatusResponse status = StatusWithoutLinks();
  v1::CostModel& cost = *status.mutable_workers(1)->mutable_load()->mutable_cost();
  cost.set_source(v1::CostModel::SOURCE_MEASURED);
  cost.mutable_alpha()->set_token_ms(0.0625);
  v1::DecodeCost::Bucket& bucket = *cost.mutable_beta()->add_buckets();
  bucket.set_max_sequences(8);
  bucket.set_base_ms(1);
  cost.mutable_beta()->set_context_token_ms(0.001);
  cost.set_error(0.125);
  cost.set_drift(1.03);
  cost.set_revision(3);
  cost.set_steps(4711);
  const std::string table = CostTable(status);
  EXPECT_THAT(table, HasSubstr("unified-0      none                   -         -"));
  EXPECT_THAT(table, HasSubstr("decode-0       measured          0.0625     1.512   12.5%    1.03"
                               "         3       4711\n"));
}

TEST(LinkTableTest, OneLinePerWayAndWhyABetterOneWasGivenUp) {
  const std::string table = LinkTable(Status());
  EXPECT_THAT(Words(table, "prefill-0"),
              testing::ElementsAre("prefill-0", "decode-0", "shm", "-", "4.25", "12.5", "-", "180",
                                   "1.5", "0.0", "0.0", "0", "0"));
  const size_t second = table.find("prefill-0", table.find("shm"));
  EXPECT_THAT(Words(table.substr(second), "prefill-0"),
              testing::ElementsAre("prefill-0", "decode-0", "tcp", "yes", "0.0125", "0.000213",
                                   "0.00000210", "-", "0.0", "123.5", "1.5", "3", "1:", "refused"));
  EXPECT_THAT(table,
              HasSubstr("prefill-0 does not reach decode-0 by tcp: the connection was cut\n"));
  EXPECT_THAT(table, HasSubstr("prefill-0 could not probe the link to decode-0 by shm: DEADLINE_"));
  EXPECT_THAT(table, HasSubstr("prefill-0 cannot reach decode-0 by nccl: another host\n"));
  EXPECT_THAT(table, HasSubstr("prefill-0 does without ipc: no memory to share\n"));
  const size_t handoffs = table.find("HAND-OFFS OF");
  EXPECT_THAT(Words(table.substr(handoffs), "decode-0"),
              testing::ElementsAre("decode-0", "0", "2", "9", "0", "0", "0", "0", "0", "0", "0",
                                   "4", "0", "71.3"));
}

TEST(WorkerTableTest, SaysWhatLossesCostOnceThereWereSome) {
  v1::GetStatusResponse status = Status();
  EXPECT_THAT(WorkerTable(status), testing::Not(HasSubstr("resumed")));
  status.mutable_resumes()->set_lost(7);
  status.mutable_resumes()->set_p99_ms(41.6);
  status.mutable_resumes()->mutable_waited()->set_p99_ms(2541.6);
  v1::ResumeCause& lease = *status.mutable_resumes()->add_causes();
  lease.set_cause("lease");
  lease.set_resumes(7);
  EXPECT_THAT(WorkerTable(status), HasSubstr("resumed: 7 after a loss, 0 away"));
  EXPECT_THAT(WorkerTable(status), HasSubstr("p99 42"));
  EXPECT_THAT(WorkerTable(status), HasSubstr("since the last token: p50 0, p99 2542"));
  EXPECT_EQ(ParseJson(StatusJson(status))["resumes"]["lost"], 7);
  EXPECT_EQ(ParseJson(StatusJson(status))["resumes"]["waited"]["p99_ms"], 2541.6);
  EXPECT_EQ(ParseJson(StatusJson(status))["resumes"]["causes"]["lease"]["resumes"], 7);
}

TEST(WorkerTableTest, SaysWhereRefusedRequestsWentOnceThereWereSome) {
  v1::GetStatusResponse status = Status();
  EXPECT_THAT(WorkerTable(status), testing::Not(HasSubstr("rerouted")));
  v1::RerouteUse& reroutes = *status.mutable_reroutes();
  reroutes.set_other_worker(5);
  reroutes.set_to_unified(4);
  reroutes.set_to_disaggregated(3);
  reroutes.set_asked_again(2);
  reroutes.set_latest("decode worker d0: full");
  EXPECT_THAT(WorkerTable(status),
              HasSubstr("rerouted: 5 to another worker, 4 to unified, 3 to disaggregated, 2 asked "
                        "again; latest: decode worker d0: full\n"));
  const auto json = ParseJson(StatusJson(status))["reroutes"];
  EXPECT_EQ(json["other_worker"], 5);
  EXPECT_EQ(json["to_unified"], 4);
  EXPECT_EQ(json["to_disaggregated"], 3);
  EXPECT_EQ(json["asked_again"], 2);
  EXPECT_EQ(json["latest"], "decode worker d0: full");
}

TEST(WorkerTableTest, SaysHowPredictionsCameTrueOnceSomeWereCompared) {
  v1::GetStatusResponse status = Status();
  EXPECT_THAT(WorkerTable(status), testing::Not(HasSubstr("predictions")));
  status.mutable_predictions()->set_policy("auto");
  const auto add = [&status](const char* term, const char* worker, double interval) {
    v1::PredictionError& error = *status.mutable_predictions()->add_errors();
    error.set_term(term);
    error.set_worker(worker);
    error.set_compared(7);
    error.set_error(0.054);
    error.set_bias(-0.021);
    error.set_coverage(0.91);
    error.set_interval(interval);
  };
  add("ttft", "", 0.125);
  add("tpot", "", 0);
  add("queue", "", 0.125);
  add("e2e", "decode-0", 0.125);
  EXPECT_THAT(
      WorkerTable(status),
      HasSubstr("predictions of auto, 7 requests compared: TTFT off by 5.4% (bias -2.1%, 91% "
                "within the stated 12.5%), TPOT off by 5.4% (bias -2.1%)\n"));
}

TEST(WorkerTableTest, SaysWhereRequestsWentAndWhatIsNotMeasured) {
  v1::GetStatusResponse status = Status();
  EXPECT_THAT(WorkerTable(status), testing::Not(HasSubstr("routed by")));
  v1::RoutingUse& routing = *status.mutable_routing();
  routing.set_policy("auto");
  routing.set_ttft_slo_ms(300);
  routing.set_unified(7);
  routing.set_disaggregated(5);
  routing.set_lowest_cost(6);
  routing.set_within_error(4);
  routing.set_not_measured(2);
  EXPECT_THAT(WorkerTable(status),
              HasSubstr("routed by auto, TTFT within 300 ms: 7 unified, 5 disaggregated; 6 to the "
                        "lowest cost, 4 to a less loaded placement within the error, 2 without "
                        "measured costs\n"));
  routing.set_missing("least loaded, because worker u0 has reported no costs");
  EXPECT_THAT(WorkerTable(status), HasSubstr("without measured costs; now least loaded, because"));
}

TEST(WorkerTableTest, SaysHowLongOutputsAreOnceSomeHaveEnded) {
  v1::GetStatusResponse status = Status();
  EXPECT_THAT(WorkerTable(status), testing::Not(HasSubstr("output lengths")));
  v1::OutputLengthUse& lengths = *status.mutable_output_lengths();
  lengths.set_predictor("adaptive");
  lengths.set_stopped(5);
  lengths.set_capped(2);
  lengths.set_interrupted(1);
  lengths.set_mean_tokens(40.25);
  lengths.set_predicted_tokens(38.5);
  lengths.set_error_tokens(6.5);
  lengths.set_within_p90(0.875);
  EXPECT_THAT(WorkerTable(status),
              HasSubstr("output lengths (adaptive): 40.2 tokens, predicted 38.5; off from the "
                        "median by 6.5, 88% within p90; 5 stopped, 2 capped, 1 interrupted\n"));
}

TEST(StatusJsonTest, HasTheBlocksOfEachWorker) {
  const auto json = ParseJson(StatusJson(Status()));
  ASSERT_EQ(json["workers"].size(), 3u);
  EXPECT_EQ(json["workers"][1]["not_ready"], "no step for 5 s");
  EXPECT_EQ(json["workers"][1]["handoffs"]["waiting_reservations"], 9);
  EXPECT_EQ(json["workers"][1]["handoffs"]["draining_reservations"], 6);
  ASSERT_EQ(json["workers"][2]["links"].size(), 4u);
  EXPECT_EQ(json["workers"][2]["links"][0]["best_probe_gb_per_s"], 12.5);
  EXPECT_EQ(json["workers"][2]["links"][0]["probe_failure"], "DEADLINE_EXCEEDED: too slow");
  EXPECT_EQ(json["workers"][2]["links"][2]["unreachable"], "another host");
  EXPECT_EQ(json["workers"][2]["links"][1]["transport"], "tcp");
  EXPECT_EQ(json["workers"][2]["links"][1]["fallbacks"], 1);
  EXPECT_EQ(json["workers"][2]["links"][1]["failure"], "the connection was cut");
  EXPECT_EQ(json["workers"][2]["links"][0]["probe_gb_per_s"], 4.25);
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

TEST(StatusReportTest, SaysHowWellPrefixHitsWerePredicted) {
  v1::GetStatusResponse status = StatusWithoutLinks();
  EXPECT_EQ(WorkerTable(status).find("prefix index"), std::string::npos);
  EXPECT_EQ(WorkerTable(status).find("sessions"), std::string::npos);
  v1::PrefixIndexUse& index = *status.mutable_prefix_index();
  index.set_entries(5);
  index.set_bytes(1500000);
  index.set_limit_bytes(256000000);
  index.set_lookups(9);
  index.set_hits(4);
  index.set_predicted_tokens(640);
  index.set_cached_tokens(655);
  index.set_error_tokens(15);
  status.mutable_sessions()->set_entries(3);
  status.mutable_sessions()->set_kept(2);
  status.mutable_sessions()->set_moved(1);
  EXPECT_THAT(WorkerTable(status),
              HasSubstr("prefix index: 5 blocks, 1.5/256.0 MB, 4 of 9 lookups hit; cached tokens "
                        "predicted 640, actual 655, differing by 15\n"
                        "sessions: 3, 2 requests stayed with their session's workers, 1 moved\n"));
}

}  // namespace
}  // namespace tandem::status_report_test
