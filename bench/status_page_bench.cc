// What one poll of the status page costs a router with 64 workers, of which 32 prefill workers have links to
// 32 decode workers over two transports: on the router's loop, which copies the latest requests, each with
// eight placements; and on the thread of the page, which copies the status and renders both.
//   status_page_bench [--rounds N] [--json FILE]
#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/status.h"
#include "bench/flags.h"
#include "bench/result.h"
#include "nlohmann/json.hpp"
#include "router/explain/decision_log.h"
#include "server/admin/status_page.h"
#include "tests/support/fake_clock.h"

namespace tandem {
namespace {

using Json = nlohmann::json;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr int kPairs = 32;

// The CPU time of all threads of this process.
double CpuMilliseconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return 1e3 * static_cast<double>(used.tv_sec) + 1e-6 * static_cast<double>(used.tv_nsec);
}

template <typename Work>
double Milliseconds(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return ToMilliseconds(std::chrono::steady_clock::now() - begin);
}

// Gives every number of the message, and of the messages within it, a value with as many digits as
// usual.
void FillNumbers(Message& message) {
  const google::protobuf::Reflection& to = *message.GetReflection();
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* field = type.field(i);
    if (field->is_repeated()) continue;
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      FillNumbers(*to.MutableMessage(&message, field));
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT64) {
      to.SetUInt64(&message, field, 1234567);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT32) {
      to.SetInt32(&message, field, 1234);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
      to.SetDouble(&message, field, 12.34567890123);
    }
  }
}

v1::GetStatusResponse Fleet() {
  v1::GetStatusResponse status;
  FillNumbers(status);
  for (int i = 0; i < 2 * kPairs; ++i) {
    v1::WorkerStatus& worker = *status.add_workers();
    FillNumbers(worker);
    worker.set_name(fmt::format("{}-{:02}", i < kPairs ? "prefill" : "decode", i % kPairs));
    worker.set_address("10.0.0.1:8081");
    for (int bucket = 0; bucket < 8; ++bucket) {
      FillNumbers(*worker.mutable_load()->mutable_cost()->mutable_beta()->add_buckets());
    }
    for (int link = 0; i < kPairs && link < 2 * kPairs; ++link) {
      v1::LinkStatus& one = *worker.mutable_load()->add_links();
      FillNumbers(one);
      one.set_peer(fmt::format("decode-{:02}", link / 2));
      one.set_transport(link % 2 == 0 ? "shm" : "tcp");
    }
  }
  return status;
}

ScoredPlacement Placement(int number) {
  ScoredPlacement placement;
  placement.route = v1::ROUTE_DISAGGREGATED;
  placement.prefill = {fmt::format("prefill-{:02}", number), 1};
  placement.decode = {fmt::format("decode-{:02}", number), 1};
  placement.score.unit = PlacementScore::Unit::kMilliseconds;
  placement.score.cost = 123.45678901;
  for (const char* name : {"ttft_ms", "tpot_ms", "cached_tokens", "prefill_load", "decode_load"}) {
    placement.score.features.push_back({name, 12.3456789});
  }
  placement.score.prediction.emplace();
  return placement;
}

// Requests that have ended, as many as the log keeps.
void Fill(DecisionLog& log, const Clock& clock) {
  RouteDecision decision;
  for (int i = 0; i < static_cast<int>(RouteDecision::kMostConsidered); ++i) {
    decision.considered.push_back(Placement(i));
  }
  static_cast<ScoredPlacement&>(decision) = decision.considered.front();
  for (uint64_t i = 1; i <= DecisionLogLimits().requests; ++i) {
    RequestSpec spec;
    spec.id = fmt::format("request-{:016x}", i);
    spec.sequence.set_request_id(i);
    spec.received = clock.Now();
    const RouteQuery query{
        .prompt_tokens = 900, .context_tokens = 1200, .expected_output_tokens = 300};
    log.Add(spec, query, DecisionCause::kArrival, decision, clock.Now());
    RequestEnd end;
    FillNumbers(end.finish.emplace());
    log.End(spec, std::move(end));
  }
}

// Takes an answer without a connection.
class LoneExchange final : public HttpExchange {
 public:
  explicit LoneExchange(std::string query) { request_.query = std::move(query); }
  const HttpRequest& request() const override { return request_; }
  std::string TakeBody() override { return ""; }
  void Respond(HttpResponse response) override {
    response_ = std::move(response);
    answered_.Notify();
  }
  std::shared_ptr<HttpStream> StartStream(HttpStreamStart) override { return nullptr; }
  void OnGone(std::function<void()>) override {}
  const HttpResponse& Await() {
    answered_.WaitForNotification();
    return response_;
  }

 private:
  HttpRequest request_;
  HttpResponse response_;
  absl::Notification answered_;
};

Json Measure(const DecisionLog& log, FakeClock& clock, int decisions, int rounds) {
  const v1::GetStatusResponse fleet = Fleet();
  std::vector<double> loop_ms;
  StatusPage page({.status = [&fleet] { return fleet; },
                   .explain =
                       [&](const v1::ExplainRequest& request, const Explained& done) {
                         absl::StatusOr<v1::ExplainResponse> latest;
                         loop_ms.push_back(
                             Milliseconds([&] { latest = log.Explain(request, clock.Now()); }));
                         done(std::move(latest));
                       },
                   .clock = clock});
  const HttpRoute route = page.Route();
  std::vector<double> poll_ms;
  std::vector<double> cpu_ms;
  size_t bytes = 0;
  for (int round = 0; round < rounds; ++round) {
    clock.Advance(StatusPage::kFreshFor);
    const auto exchange = std::make_shared<LoneExchange>(fmt::format("decisions={}", decisions));
    const double cpu_before = CpuMilliseconds();
    poll_ms.push_back(Milliseconds([&] {
      route.handler(exchange);
      bytes = exchange->Await().body.size();
    }));
    cpu_ms.push_back(CpuMilliseconds() - cpu_before);
  }
  return {{"decisions", decisions},
          {"loop_ms", Median(loop_ms)},
          {"poll_ms", Median(poll_ms)},
          {"cpu_ms", Median(cpu_ms)},
          {"body_bytes", bytes}};
}

absl::Status Main(int argc, char** argv) {
  int32_t rounds = 200;
  std::string json_path;
  FlagParser parser;
  parser.Count("--rounds", rounds);
  parser.Text("--json", json_path);
  RETURN_IF_ERROR(parser.Parse(argc, argv));
  FakeClock clock;
  PredictionBook book;
  DecisionLog log("auto", book);
  Fill(log, clock);
  Json polls = Json::array();
  for (const int decisions : {StatusPage::kUsualDecisions, StatusPage::kMostDecisions}) {
    polls.push_back(Measure(log, clock, decisions, rounds));
  }
  const Json result = {{"bench", "status_page"},
                       {"command", CommandLine(argc, argv)},
                       {"date", Today()},
                       {"machine", MachineName()},
                       {"rounds", rounds},
                       {"workers", 2 * kPairs},
                       {"links", 2 * kPairs * kPairs},
                       {"polls", std::move(polls)}};
  std::puts(result.dump(2).c_str());
  return WriteJson(result, json_path);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::ExitCode("status_page_bench", tandem::Main(argc, argv));
}
