#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "base/status.h"
#include "bench/serving/serve_bench.h"
#include "server/commands/bench_flags.h"
#include "server/commands/commands.h"
#include "server/commands/load_flags.h"
#include "server/commands/tls_flags.h"

namespace tandem {
namespace {

absl::Status RunBench(const BenchFlags& flags) {
  ASSIGN_OR_RETURN(const loadgen::ServeBenchOptions options, MakeBenchOptions(flags));
  ASSIGN_OR_RETURN(const std::unique_ptr<loadgen::Backend> backend, MakeBenchBackend(flags));
  return ServeBench(options, *backend);
}

void AddServerFlags(CLI::App& serve, BenchFlags& flags) {
  const std::string group = "Server";
  serve
      .add_option("--backend", flags.backend,
                  "tandem (gRPC), or over HTTP openai (completions) or openai-chat")
      ->capture_default_str()
      ->group(group);
  serve.add_option("--server", flags.server, "host:port of the router")
      ->capture_default_str()
      ->group(group);
  AddClientTlsFlags(serve, flags.tls);
  serve.add_option("--route", flags.route, "auto, unified or disaggregated")
      ->check(CLI::IsMember({"auto", "unified", "disaggregated"}))
      ->capture_default_str()
      ->group(group);
  serve
      .add_option("--ready-check-timeout-sec", flags.ready_timeout_seconds,
                  "wait so long for a server that is not ready; 0: refuse at once")
      ->capture_default_str()
      ->group(group);
  serve
      .add_option("--request-timeout-sec", flags.request_timeout_seconds,
                  "deadline of each request")
      ->capture_default_str()
      ->group(group);
  serve.add_option("--temperature", flags.temperature, "0 is greedy")
      ->capture_default_str()
      ->group(group);
  serve
      .add_flag("--ignore-eos,!--no-ignore-eos", flags.ignore_eos,
                "outputs have exactly the wanted length (default); with --no-ignore-eos a model "
                "may stop earlier")
      ->group(group);
}

void AddHttpFlags(CLI::App& serve, BenchFlags& flags) {
  const std::string group = "HTTP (--backend openai and openai-chat; key from OPENAI_API_KEY)";
  loadgen::OpenAiBackendOptions& openai = flags.openai;
  serve.add_option("--base-url", openai.base_url, "address of the server")
      ->capture_default_str()
      ->group(group);
  serve
      .add_option("--endpoint", openai.endpoint, "default /v1/completions or /v1/chat/completions")
      ->group(group);
  serve.add_option("--model", openai.model, "default: the first that the server names")
      ->group(group);
  serve.add_option("--header", flags.headers, "NAME=VALUE, added to each request")->group(group);
  serve.add_option("--extra-body", openai.extra_json, "JSON object, added to each request")
      ->group(group);
}

void AddSearchFlags(CLI::App& serve, BenchFlags& flags) {
  const std::string group = "Measuring";
  const auto add = [&](const char* name, auto& value, const char* help) {
    return serve.add_option(name, value, help)->group(group);
  };
  add("--num-warmups", flags.options.num_warmups, "requests sent and answered before the run")
      ->capture_default_str();
  serve
      .add_flag("--find-goodput", flags.find_goodput,
                "search for the highest rate at which enough requests meet --goodput, from "
                "--request-rate on")
      ->group(group);
  add("--attainment", flags.search.attainment, "share of good requests that is enough")
      ->capture_default_str();
  add("--probe-seconds", flags.search.probe_seconds,
      "each run of the search lasts so long at least, with more requests than --num-prompts if "
      "need be")
      ->capture_default_str();
  add("--max-probes", flags.search.max_probes, "runs of the search at most")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
}

}  // namespace

void AddBenchCommand(CLI::App& app, Action& chosen) {
  CLI::App* bench = app.add_subcommand("bench", "Measure a server under load");
  bench->require_subcommand(1);
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* serve = bench->add_subcommand(
      "serve", "Send requests on a schedule; report latency, throughput and goodput");
  AddServerFlags(*serve, *flags);
  AddHttpFlags(*serve, *flags);
  AddWorkloadFlags(*serve, *flags);
  AddArrivalFlags(*serve, *flags);
  AddMeasuringFlags(*serve, *flags);
  AddSearchFlags(*serve, *flags);
  AddOutputFlags(*serve, *flags);
  serve->footer(
      "Examples:\n"
      "  tandem bench serve --request-rate 4 --num-prompts 200 --input-len 256 --output-len 64\n"
      "  tandem bench serve --dataset-name mooncake --dataset-path trace.jsonl --replay-speedup "
      "10\n"
      "  tandem bench serve --request-rate 4 --find-goodput --goodput ttft:500 tpot:50");
  serve->callback([flags, &chosen] {
    chosen = [flags] {
      const absl::Status status = RunBench(*flags);
      return status.ok() ? kExitOk : PrintError(status);
    };
  });
  AddSweepCommand(*bench, chosen);
  AddSloMapCommand(*bench, chosen);
  AddCrossoverCommand(*bench, chosen);
}

}  // namespace tandem
