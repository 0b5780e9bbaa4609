// What handing a request from a prefill worker to a decode worker costs its client, over real
// processes of this machine:
//   handoff_bench --model DIR [--binary build/release/bin/tandem] [--transports shm,tcp]
//                 [--threads 0] [--services 1] [--pairs 40] [--long 3] [--json FILE]
// Per transport a service of a router, a prefill, a decode and a unified worker, without a prefix
// cache; the pairs are divided among that many services, started one after another: the pages that
// a process got make its computing a few tenths of a percent faster or slower than another's, which
// is as much as is looked for. Short: prompts of 16 tokens on either route in turn; how much more
// TTFT, as the client sees it, is than that of the one before it, or by turns after it, is what the
// hand-off adds: the median, with the interval in which it lies at 95%; beside it the medians of
// the stages of TTFT on either route. Long: prompts of 2,048 tokens on the disaggregated route; how
// much of their KV had reached the decode worker by the first token, and the time from there to the
// acknowledgement of the rest. The client of one request waits for its end before the next begins.
// --threads is that of each worker.
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "base/status.h"
#include "bench/flags.h"
#include "bench/result.h"
#include "nlohmann/json.hpp"
#include "server/commands/child_process.h"
#include "server/commands/client.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr int32_t kShortPrompt = 16;
constexpr int32_t kLongPrompt = 2048;
constexpr int32_t kShortOutput = 4;
constexpr int32_t kTokenIds = 1000;  // that prompts are made of
constexpr double kMostAddedMs = 1;
constexpr double kLeastHidden = 0.7;
constexpr std::chrono::minutes kPatience{2};

struct Flags {
  std::string model;
  std::string binary = "build/release/bin/tandem";
  std::string transports = "shm,tcp";
  int32_t threads = 0;
  int32_t services = 1;
  int32_t pairs = 40;
  int32_t long_prompts = 3;
  std::string json_path;
};

// A router and workers, ended with this.
class Service {
 public:
  static absl::StatusOr<Service> Start(const Flags& flags, const std::string& transport) {
    ASSIGN_OR_RETURN(
        ChildProcess process,
        ChildProcess::Start(
            {"up", "--model=" + flags.model, "--port=0", "--prefill=1", "--decode=1", "--unified=1",
             "--prefix-cache=off", "--kv-tokens=8192", fmt::format("--threads={}", flags.threads),
             "--kv-transport=" + transport},
            flags.binary));
    const std::string address = process.TakeReadyLine();
    if (address.empty()) return Unavailable("{} up did not start", flags.binary);
    return Service(std::move(process), address);
  }

  Service(Service&&) = default;
  ~Service() {
    if (client_ == nullptr) return;
    process_.Signal(SIGTERM);
    waitpid(process_.pid(), nullptr, 0);
  }

  Client& client() { return *client_; }

 private:
  Service(ChildProcess process, const std::string& address)
      : process_(std::move(process)), client_(std::make_unique<Client>(address)) {}

  ChildProcess process_;
  std::unique_ptr<Client> client_;
};

struct Answer {
  double ttft_ms = 0;  // from the call to the first chunk, at the client
  v1::ChoiceFinish finish;
  v1::Usage usage;
};

absl::StatusOr<Answer> Ask(Client& client, v1::Route route, int32_t prompt_tokens, uint64_t seed,
                           int32_t max_tokens) {
  v1::GenerateRequest request;
  request.set_route(route);
  request.set_max_tokens(max_tokens);
  request.set_ignore_eos(true);
  request.mutable_sampling()->set_temperature(0);
  for (int32_t i = 0; i < prompt_tokens; ++i) {
    const auto words = Philox4x32(seed, static_cast<uint64_t>(i), 0);
    request.mutable_token_ids()->add_ids(static_cast<int32_t>(3 + words[0] % kTokenIds));
  }
  Answer answer;
  const auto begin = std::chrono::steady_clock::now();
  RETURN_IF_ERROR(client.Generate(request, kPatience, [&](const v1::GenerateResponse& event) {
    if (answer.ttft_ms == 0 && event.has_chunk()) {
      answer.ttft_ms = ToMilliseconds(std::chrono::steady_clock::now() - begin);
    }
    if (event.has_finish()) answer.finish = event.finish();
    if (event.has_summary()) answer.usage = event.summary().usage();
    return true;
  }));
  return answer;
}

// Both routes, until neither waits for weights to be packed or pages to be touched.
absl::Status WarmUp(Client& client) {
  for (uint64_t turn = 0; turn < 3; ++turn) {
    for (const v1::Route route : {v1::ROUTE_UNIFIED, v1::ROUTE_DISAGGREGATED}) {
      RETURN_IF_ERROR(Ask(client, route, 256, turn, kShortOutput).status());
    }
  }
  return absl::OkStatus();
}

struct ShortPrompts {
  std::vector<double> unified;  // TTFT, one more than of the other route
  std::vector<double> split;
  std::vector<v1::Stages> unified_stages;
  std::vector<v1::Stages> split_stages;
};

void Append(const ShortPrompts& times, ShortPrompts& to) {
  const auto append = [](const auto& from, auto& all) {
    all.insert(all.end(), from.begin(), from.end());
  };
  append(times.unified, to.unified);
  append(times.split, to.split);
  append(times.unified_stages, to.unified_stages);
  append(times.split_stages, to.split_stages);
}

// The median of each stage of TTFT.
Json MedianStages(const std::vector<v1::Stages>& all) {
  const auto middle = [&all](double (v1::Stages::*stage)() const) {
    std::vector<double> values;
    for (const v1::Stages& stages : all) values.push_back((stages.*stage)());
    return Median(std::move(values));
  };
  return {{"ttft_ms", middle(&v1::Stages::ttft_ms)},
          {"queue_ms", middle(&v1::Stages::queue_ms)},
          {"admission_ms", middle(&v1::Stages::admission_ms)},
          {"reserve_ms", middle(&v1::Stages::reserve_ms)},
          {"prefill_ms", middle(&v1::Stages::prefill_ms)},
          {"transfer_ms", middle(&v1::Stages::transfer_ms)},
          {"first_token_ms", middle(&v1::Stages::first_token_ms)},
          {"residual_ms", middle(&v1::Stages::residual_ms)}};
}

struct Measured {
  ShortPrompts times;
  std::vector<double> added;             // of each pair, ms
  std::vector<double> added_by_service;  // the medians
  std::vector<Answer> long_prompts;
};

// Each request follows one of the other route: both find the caches as the other's weights left
// them. With turns of both orders the second of two alike is faster by as much as is looked for.
absl::StatusOr<std::vector<double>> AskInTurns(Client& client, int32_t pairs, ShortPrompts& all) {
  ShortPrompts times;
  for (int32_t turn = 0; turn <= 2 * pairs; ++turn) {
    const bool is_split = turn % 2 != 0;
    const v1::Route route = is_split ? v1::ROUTE_DISAGGREGATED : v1::ROUTE_UNIFIED;
    ASSIGN_OR_RETURN(const Answer answer, Ask(client, route, kShortPrompt,
                                              1000 + static_cast<uint64_t>(turn), kShortOutput));
    (is_split ? times.split : times.unified).push_back(answer.ttft_ms);
    (is_split ? times.split_stages : times.unified_stages).push_back(answer.finish.stages());
  }
  std::vector<double> added;
  for (size_t i = 0; i < times.split.size(); ++i) {
    added.push_back(times.split[i] - times.unified[i + i % 2]);  // the one before, the one after
  }
  Append(times, all);
  return added;
}

absl::Status MeasureService(const Flags& flags, const std::string& transport, Measured& measured) {
  ASSIGN_OR_RETURN(Service service, Service::Start(flags, transport));
  RETURN_IF_ERROR(WarmUp(service.client()));
  const int32_t pairs = flags.pairs / flags.services;
  ASSIGN_OR_RETURN(const std::vector<double> added,
                   AskInTurns(service.client(), pairs, measured.times));
  measured.added.insert(measured.added.end(), added.begin(), added.end());
  measured.added_by_service.push_back(Median(added));
  if (measured.added_by_service.size() > 1) return absl::OkStatus();
  for (int32_t i = 0; i < flags.long_prompts; ++i) {
    ASSIGN_OR_RETURN(measured.long_prompts.emplace_back(),
                     Ask(service.client(), v1::ROUTE_DISAGGREGATED, kLongPrompt,
                         5000 + static_cast<uint64_t>(i), kShortOutput));
  }
  return absl::OkStatus();
}

Json ShortRow(const Measured& measured) {
  const double median_added = Median(measured.added);
  const MedianInterval interval = IntervalOfMedian(measured.added);
  return {{"prompt_tokens", kShortPrompt},
          {"pairs", measured.added.size()},
          {"unified_ttft_ms", Median(measured.times.unified)},
          {"disaggregated_ttft_ms", Median(measured.times.split)},
          {"added_ms", median_added},
          {"added_low_ms", interval.low},
          {"added_high_ms", interval.high},
          {"added_by_service_ms", measured.added_by_service},
          {"unified_stages", MedianStages(measured.times.unified_stages)},
          {"disaggregated_stages", MedianStages(measured.times.split_stages)},
          {"most_ms", kMostAddedMs},
          {"met", median_added < kMostAddedMs},
          {"all_added_ms", measured.added}};
}

Json LongRow(const std::vector<Answer>& answers) {
  Json prompts = Json::array();
  std::vector<double> shares;
  for (const Answer& answer : answers) {
    const v1::KvBytes& kv = answer.finish.kv_bytes();
    shares.push_back(static_cast<double>(answer.usage.kv_hidden_bytes()) /
                     static_cast<double>(kv.raw()));
    prompts.push_back({{"ttft_ms", answer.ttft_ms},
                       {"bytes", kv.raw()},
                       {"hidden_bytes", answer.usage.kv_hidden_bytes()},
                       {"transfer_ms", kv.transfer_ms()},
                       {"exposed_ms", kv.exposed_ms()}});
  }
  const double share = Median(shares);
  return {{"prompt_tokens", kLongPrompt},
          {"hidden_share", share},
          {"least", kLeastHidden},
          {"met", share >= kLeastHidden},
          {"prompts", std::move(prompts)}};
}

absl::StatusOr<Json> MeasureTransport(const Flags& flags, const std::string& transport) {
  Measured measured;
  for (int32_t i = 0; i < flags.services; ++i) {
    RETURN_IF_ERROR(MeasureService(flags, transport, measured));
  }
  Json row = {{"transport", transport}, {"short", ShortRow(measured)}};
  const Json& added = row["short"];
  fmt::print(
      "{:5} 16 tokens: TTFT {:.2f} ms unified, {:.2f} ms disaggregated, added {:.2f} ms "
      "({:.2f} to {:.2f})\n",
      transport, added["unified_ttft_ms"].get<double>(),
      added["disaggregated_ttft_ms"].get<double>(), added["added_ms"].get<double>(),
      added["added_low_ms"].get<double>(), added["added_high_ms"].get<double>());
  if (measured.long_prompts.empty()) return row;
  row["long"] = LongRow(measured.long_prompts);
  fmt::print("{:5} 2,048 tokens: {:.1f}% of the bytes hidden\n", transport,
             100 * row["long"]["hidden_share"].get<double>());
  return row;
}

absl::StatusOr<Json> Run(const Flags& flags) {
  Json rows = Json::array();
  for (std::string_view rest = flags.transports; !rest.empty();) {
    const std::string transport(rest.substr(0, rest.find(',')));
    ASSIGN_OR_RETURN(Json row, MeasureTransport(flags, transport));
    rows.push_back(std::move(row));
    rest.remove_prefix(std::min(rest.size(), transport.size() + 1));
  }
  return rows;
}

absl::Status Main(int argc, char** argv) {
  Flags flags;
  FlagParser parser;
  parser.Text("--model", flags.model);
  parser.Text("--binary", flags.binary);
  parser.Text("--transports", flags.transports);
  parser.Count("--threads", flags.threads, 0);
  parser.Count("--services", flags.services);
  parser.Count("--pairs", flags.pairs);
  parser.Count("--long", flags.long_prompts, 0);
  parser.Text("--json", flags.json_path);
  RETURN_IF_ERROR(parser.Parse(argc, argv));
  if (flags.model.empty()) return InvalidArgument("--model DIR is missing");
  if (flags.pairs < flags.services) {
    return InvalidArgument("--pairs {} are fewer than --services {}", flags.pairs, flags.services);
  }
  ASSIGN_OR_RETURN(Json rows, Run(flags));
  const Json result = {{"bench", "handoff"},
                       {"machine", MachineName()},
                       {"date", Today()},
                       {"command", CommandLine(argc, argv)},
                       {"threads", flags.threads},
                       {"services", flags.services},
                       {"transports", std::move(rows)}};
  return WriteJson(result, flags.json_path);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::ExitCode("handoff_bench", tandem::Main(argc, argv));
}
