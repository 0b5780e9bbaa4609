// How fast one process computes a checkpoint, without the engine and without gRPC:
//   model_bench --model DIR [--device cpu|cpu-bf16] [--threads T] [--prefill 512,2048] [--decode-batch 1,8]
//               [--depth 0,2048] [--decode-steps 64] [--weights int8] [--kv-dtype bf16] [--chunk 512] [--repeats 3] [--json FILE]
// Prefill: one sequence from an empty context, in chunks of the engine's default budget, to the
// first token. Decode: every batch at every depth, each sequence on KV of its own. Medians over the
// repeats, which run turn by turn so that a disturbance does not fall on one case alone; the
// ceilings are measured before each of them, and their medians taken likewise. Bytes and FLOPs are
// what the ops must at least move and compute (kernels/op_cost.h).

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/ceilings.h"
#include "bench/flags.h"
#include "bench/model_session.h"
#include "bench/result.h"
#include "nlohmann/json.hpp"

namespace tandem {
namespace {

using Json = nlohmann::json;

struct Flags {
  std::string model;
  std::string device = "cpu";
  std::string json_path;
  std::vector<int32_t> prefill = {512, 2048};
  std::vector<int32_t> batches = {1, 8};
  std::vector<int32_t> depths = {0, 2048};
  int32_t threads = 0;
  int32_t decode_steps = 64;
  int32_t chunk = 512;
  int32_t repeats = 3;
  WeightsAs weights_as = WeightsAs::kStored;
  DType kv_dtype = DType::kBF16;
};

absl::StatusOr<Flags> ParseFlags(int argc, char** argv) {
  Flags flags;
  FlagParser parser;
  parser.Text("--model", flags.model);
  parser.Text("--device", flags.device);
  parser.Text("--json", flags.json_path);
  parser.Counts("--prefill", flags.prefill, 1);
  parser.Counts("--decode-batch", flags.batches, 1);
  parser.Counts("--depth", flags.depths, 0);
  parser.Count("--threads", flags.threads, 0);
  parser.Count("--decode-steps", flags.decode_steps);
  parser.Count("--chunk", flags.chunk);
  parser.Count("--repeats", flags.repeats);
  parser.Add("--weights", [&flags](std::string_view value) -> absl::Status {
    ASSIGN_OR_RETURN(flags.weights_as, ParseWeightsAs(value));
    return absl::OkStatus();
  });
  parser.Add("--kv-dtype", [&flags](std::string_view value) -> absl::Status {
    const std::optional<DType> dtype = DTypeFromName(value);
    if (!dtype.has_value() || !IsKvType(*dtype))
      return InvalidArgument("--kv-dtype is {}: {}", value, kKvTypeNames);
    flags.kv_dtype = *dtype;
    return absl::OkStatus();
  });
  RETURN_IF_ERROR(parser.Parse(argc, argv));
  if (flags.model.empty()) return InvalidArgument("--model DIR is missing");
  return flags;
}

struct Case {
  bool is_prefill = false;
  int32_t tokens = 0;  // prefill
  int32_t batch = 0;   // decode
  int32_t depth = 0;
  std::vector<BenchRun> runs;

  std::string Title() const {
    return is_prefill ? fmt::format("prefill {}", tokens)
                      : fmt::format("decode batch {} depth {}", batch, depth);
  }
  // The run of the median time.
  const BenchRun& Median() {
    std::sort(runs.begin(), runs.end(),
              [](const BenchRun& a, const BenchRun& b) { return a.seconds < b.seconds; });
    return runs[runs.size() / 2];
  }
};

std::vector<Case> Cases(const Flags& flags) {
  std::vector<Case> cases;
  for (int32_t tokens : flags.prefill) {
    if (tokens > 0) cases.push_back({.is_prefill = true, .tokens = tokens});
  }
  for (int32_t batch : flags.batches) {
    for (int32_t depth : flags.depths) {
      if (batch > 0) cases.push_back({.batch = batch, .depth = depth});
    }
  }
  return cases;
}

absl::StatusOr<std::unique_ptr<ModelSession>> OpenSession(const Flags& flags,
                                                          const std::vector<Case>& cases) {
  int32_t context = 1;
  int32_t batch = 1;
  for (const Case& c : cases) {
    context = std::max({context, c.tokens, c.depth + flags.decode_steps});
    batch = std::max(batch, c.batch);
  }
  return ModelSession::Open({.directory = flags.model,
                             .device = flags.device,
                             .num_threads = flags.threads,
                             .weights_as = flags.weights_as,
                             .kv_dtype = flags.kv_dtype,
                             .chunk_tokens = flags.chunk,
                             .max_batch = batch,
                             .max_context_tokens = context});
}

Json Report(Case& c, const Ceilings& ceilings) {
  const BenchRun& run = c.Median();
  const OpTotals sum = Sum(run.profile);
  const double steps = static_cast<double>(run.steps);
  const double gbps = sum.cost.bytes / run.seconds * 1e-9;
  const double gflops = sum.cost.flops / run.seconds * 1e-9;
  Json row = {{"kind", c.is_prefill ? "prefill" : "decode"},
              {"tokens_per_s", static_cast<double>(run.tokens) / run.seconds},
              {"ms", run.seconds * 1e3},
              {"ms_per_step", run.seconds * 1e3 / steps},
              {"bytes_per_step", sum.cost.bytes / steps},
              {"flops_per_step", sum.cost.flops / steps},
              {"gbytes_per_s", gbps},
              {"gflops_per_s", gflops},
              {"share_of_dram_read", gbps / ceilings.dram_read_gbps},
              {"share_of_fma", gflops / ceilings.fma_gflops}};
  if (c.is_prefill) {
    row["tokens"] = c.tokens;
  } else {
    row["batch"] = c.batch;
    row["depth"] = c.depth;
  }
  for (const BenchRun& each : c.runs) row["all_ms"].push_back(each.seconds * 1e3);
  for (size_t i = 0; i < run.profile.size(); ++i) {
    const OpTotals& op = run.profile[i];
    if (op.calls == 0) continue;
    row["ops"][std::string(Name(static_cast<OpKind>(i)))] = {{"ms", op.seconds * 1e3},
                                                             {"calls", op.calls},
                                                             {"bytes", op.cost.bytes},
                                                             {"flops", op.cost.flops}};
  }
  return row;
}

void Print(const std::string& title, const Json& row) {
  fmt::print(
      "{:<27}{:>9.1f} tok/s{:>10.2f} ms/step{:>9.1f} MB{:>9.2f} GFLOP{:>7.1f} GB/s = {:>3.0f}%"
      "{:>8.1f} GFLOP/s = {:>3.0f}%\n",
      title, row["tokens_per_s"].get<double>(), row["ms_per_step"].get<double>(),
      row["bytes_per_step"].get<double>() * 1e-6, row["flops_per_step"].get<double>() * 1e-9,
      row["gbytes_per_s"].get<double>(), row["share_of_dram_read"].get<double>() * 100,
      row["gflops_per_s"].get<double>(), row["share_of_fma"].get<double>() * 100);
  for (const auto& [name, op] : row["ops"].items()) {
    const double seconds = op["ms"].get<double>() * 1e-3;
    fmt::print("  {:<25}{:>6.1f}%{:>35.1f} GB/s{:>16.1f} GFLOP/s\n", name,
               100 * op["ms"].get<double>() / row["ms"].get<double>(),
               op["bytes"].get<double>() * 1e-9 / seconds,
               op["flops"].get<double>() * 1e-9 / seconds);
  }
}

// Runs every case `repeats` times, in turn, and returns the ceilings of that time.
absl::StatusOr<Ceilings> RunCases(const Flags& flags, ModelSession& session,
                                  std::vector<Case>& cases) {
  CeilingProbe probe(flags.threads);
  std::vector<double> dram_reads;
  std::vector<double> fmas;
  RETURN_IF_ERROR(session.Prefill(1).status());
  for (int32_t repeat = 0; repeat < flags.repeats; ++repeat) {
    for (Case& c : cases) {
      dram_reads.push_back(probe.DramReadGbps());
      fmas.push_back(probe.FmaGflops());
      auto run = c.is_prefill ? session.Prefill(c.tokens)
                              : session.Decode(c.batch, c.depth, flags.decode_steps);
      RETURN_IF_ERROR(run.status());
      c.runs.push_back(*std::move(run));
    }
  }
  return Ceilings{.dram_read_gbps = Median(dram_reads), .fma_gflops = Median(fmas)};
}

absl::Status Run(const Flags& flags) {
  std::vector<Case> cases = Cases(flags);
  ASSIGN_OR_RETURN(const auto session, OpenSession(flags, cases));
  ASSIGN_OR_RETURN(const Ceilings ceilings, RunCases(flags, *session, cases));

  Json report = {{"model", flags.model},
                 {"model_type", session->config().model_type},
                 {"parameters", session->parameters()},
                 {"weight_bytes", session->weight_bytes()},
                 {"weights", std::string(Name(flags.weights_as))},
                 {"kv_dtype", std::string(Name(flags.kv_dtype))},
                 {"device", flags.device},
                 {"threads", flags.threads},
                 {"chunk_tokens", flags.chunk},
                 {"load_s", session->load_seconds()},
                 {"ceilings",
                  {{"dram_read_gbytes_per_s", ceilings.dram_read_gbps},
                   {"fma_gflops_per_s", ceilings.fma_gflops}}}};
  fmt::print(
      "{}: {:.3f} B parameters, {:.1f} MB of packed weights, loaded in {:.3f} s; {} threads\n"
      "ceilings: DRAM read {:.1f} GB/s, f32 FMA {:.1f} GFLOP/s\n",
      flags.model, static_cast<double>(session->parameters()) * 1e-9,
      static_cast<double>(session->weight_bytes()) * 1e-6, session->load_seconds(), flags.threads,
      ceilings.dram_read_gbps, ceilings.fma_gflops);
  for (Case& c : cases) {
    const Json row = Report(c, ceilings);
    Print(c.Title(), row);
    report["results"].push_back(row);
  }
  return WriteJson(report, flags.json_path);
}

absl::Status Main(int argc, char** argv) {
  ASSIGN_OR_RETURN(const Flags flags, ParseFlags(argc, argv));
  return Run(flags);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::ExitCode("model_bench", tandem::Main(argc, argv));
}
