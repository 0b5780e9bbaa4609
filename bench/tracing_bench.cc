// What traces cost a router: for a request that is not traced, for one that is, with the spans of a
// hand-off, and on the thread that exports.
//   tracing_bench [--rounds N] [--json FILE]
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "bench/flags.h"
#include "bench/result.h"
#include "nlohmann/json.hpp"
#include "router/request/request_spans.h"
#include "tracing/otlp_json.h"
#include "tracing/tracer.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr int kRequestsPerRound = 1000;

// Keeps the spans of the latest request.
class LatestSpans final : public SpanConsumer {
 public:
  void Take(std::vector<Span> spans) override { latest = std::move(spans); }
  std::vector<Span> latest;
};

template <typename Work>
double NanosecondsPerRequest(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kRequestsPerRound; ++i) work();
  const auto took = std::chrono::steady_clock::now() - begin;
  return std::chrono::duration<double, std::nano>(took).count() / kRequestsPerRound;
}

template <typename Work>
double MedianOf(int rounds, const Work& work) {
  std::vector<double> nanoseconds;
  for (int i = 0; i < rounds; ++i) nanoseconds.push_back(NanosecondsPerRequest(work));
  return Median(std::move(nanoseconds));
}

// What a request of the route disaggregated makes of its trace, from its arrival to its end. Times
// and attributes are as many as those of the router.
void RunRequest(const Tracer& tracer, const SteadyClock& clock) {
  RequestSpec spec;
  spec.id = "0123456789abcdef";
  spec.model = "sample";
  spec.received = clock.Now();
  spec.trace = BeginRequestTrace(&tracer, spec.model, clock, std::nullopt);
  const TracePoint& request = spec.trace;
  if (!request.records()) return;
  request.Begin("tokenize", SpanKind::kInternal, clock.Now()).End(clock.Now());
  request.Begin("route", SpanKind::kInternal, clock.Now()).End(clock.Now());
  const TracePoint attempt = request.Begin("attempt", SpanKind::kInternal, clock.Now());
  attempt.Set("tandem.attempt", int64_t{1});
  for (const char* key : {"tandem.decision.cause", "tandem.decision.score", "tandem.route",
                          "tandem.worker.prefill", "tandem.worker.decode"}) {
    attempt.Set(key, "a value of some letters");
  }
  for (const char* call : {"reserve", "prefill", "hand_off", "decode"}) {
    const TracePoint span = attempt.Begin(call, SpanKind::kClient, clock.Now());
    span.Set("tandem.worker", "prefill-0");
    if (const auto context = span.context()) (void)ToTraceparent(*context);
    span.End(clock.Now());
  }
  attempt.End(clock.Now());
  RequestReport report;
  report.route = v1::ROUTE_DISAGGREGATED;
  report.prefill = {"prefill-0", 1};
  report.decode = {"decode-0", 1};
  v1::ChoiceFinish finish;
  finish.set_completion_tokens(16);
  const std::optional<v1::ChoiceFinish> longest = finish;
  const absl::Status status;
  EndRequestTrace(spec,
                  {.status = status,
                   .report = report,
                   .longest = longest,
                   .finish_reasons = {v1::FINISH_REASON_STOP},
                   .completion_tokens = 16,
                   .policy = "least-loaded"},
                  clock.Now());
}

absl::Status Main(int argc, char** argv) {
  int32_t rounds = 100;
  std::string json_path;
  FlagParser parser;
  parser.Count("--rounds", rounds);
  parser.Text("--json", json_path);
  RETURN_IF_ERROR(parser.Parse(argc, argv));
  const SteadyClock clock;
  LatestSpans spans;
  const Tracer none(0, nullptr);
  const Tracer rarely(1e-9, &spans);
  const Tracer always(1, &spans);
  Json result = {{"bench", "tracing"},
                 {"date", Today()},
                 {"machine", MachineName()},
                 {"command", CommandLine(argc, argv)},
                 {"rounds", rounds}};
  result["no_exporter_ns"] = MedianOf(rounds, [&] { RunRequest(none, clock); });
  result["not_sampled_ns"] = MedianOf(rounds, [&] { RunRequest(rarely, clock); });
  result["sampled_ns"] = MedianOf(rounds, [&] { RunRequest(always, clock); });
  const EndedTrace traces[] = {{.spans = spans.latest}};
  const TraceResource resource{.attributes = {{"service.name", "tandem-router"}}, .version = "0"};
  size_t bytes = 0;
  result["export_ns"] = MedianOf(rounds, [&] { bytes = ToOtlpJson(resource, traces).size(); });
  result["spans"] = spans.latest.size();
  result["json_bytes"] = bytes;
  std::puts(result.dump(2).c_str());
  return WriteJson(result, json_path);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::ExitCode("tracing_bench", tandem::Main(argc, argv));
}
