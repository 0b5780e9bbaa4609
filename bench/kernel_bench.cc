// How fast each op runs, beside what the machine can do at best in the same run:
//   kernel_bench [--threads T] [--filter TEXT] [--repeats R] [--json FILE]
// --filter takes the cases whose "op shape" holds the text. Cases and ceilings are measured turn by
// turn, R times, each time for some milliseconds; the medians count. Bytes and FLOPs are what an op
// must at least move and compute (kernels/op_cost.h). An op that works on one row is too short for
// its rates to say much: its time does.

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "bench/ceilings.h"
#include "bench/flags.h"
#include "bench/kernel_cases.h"
#include "bench/result.h"
#include "nlohmann/json.hpp"

namespace tandem {
namespace {

using Json = nlohmann::json;

struct Flags {
  int32_t threads = 0;
  int32_t repeats = 7;
  std::string filter;
  std::string json_path;
};

absl::StatusOr<Flags> ParseFlags(int argc, char** argv) {
  Flags flags;
  FlagParser parser;
  parser.Count("--threads", flags.threads);
  parser.Count("--repeats", flags.repeats);
  parser.Text("--filter", flags.filter);
  parser.Text("--json", flags.json_path);
  RETURN_IF_ERROR(parser.Parse(argc, argv));
  return flags;
}

// Seconds of one call, from as many as take kSampleTime.
absl::StatusOr<double> Sample(const KernelCase& kernel) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kSampleTime{10};
  const Clock::time_point start = Clock::now();
  Clock::time_point now = start;
  int64_t calls = 0;
  while (now - start < kSampleTime) {
    RETURN_IF_ERROR(kernel.call());
    ++calls;
    now = Clock::now();
  }
  return std::chrono::duration<double>(now - start).count() / static_cast<double>(calls);
}

Json Row(const KernelCase& kernel, const std::vector<double>& seconds, const Ceilings& ceilings) {
  const double median = Median(seconds);
  const double gbps = kernel.cost.bytes / median * 1e-9;
  const double gflops = kernel.cost.flops / median * 1e-9;
  return {{"op", kernel.op},
          {"shape", kernel.shape},
          {"us", median * 1e6},
          {"best_us", *std::min_element(seconds.begin(), seconds.end()) * 1e6},
          {"bytes", kernel.cost.bytes},
          {"flops", kernel.cost.flops},
          {"gbytes_per_s", gbps},
          {"gflops_per_s", gflops},
          {"share_of_dram_read", gbps / ceilings.dram_read_gbps},
          {"share_of_fma", gflops / ceilings.fma_gflops}};
}

void Print(const Json& row) {
  fmt::print(
      "{:<18}{:<22}{:>10.1f} us{:>10.1f} us{:>8.1f} GB/s = {:>3.0f}%{:>8.1f} GFLOP/s = {:>3.0f}%\n",
      row["op"].get<std::string>(), row["shape"].get<std::string>(), row["us"].get<double>(),
      row["best_us"].get<double>(), row["gbytes_per_s"].get<double>(),
      100 * row["share_of_dram_read"].get<double>(), row["gflops_per_s"].get<double>(),
      100 * row["share_of_fma"].get<double>());
}

absl::Status Run(const Flags& flags) {
  ASSIGN_OR_RETURN(Backend backend, OpenBackend("cpu", {.num_threads = flags.threads}));
  ASSIGN_OR_RETURN(const auto arrays, KernelArrays::Create(std::move(backend)));
  ASSIGN_OR_RETURN(std::vector<KernelCase> cases, AllKernelCases(*arrays));
  std::erase_if(cases, [&](const KernelCase& kernel) {
    return (kernel.op + " " + kernel.shape).find(flags.filter) == std::string::npos;
  });
  if (cases.empty()) return NotFound("--filter {}: no case has that in its name", flags.filter);

  CeilingProbe probe(flags.threads);
  std::vector<double> dram_read, fma;
  std::vector<std::vector<double>> seconds(cases.size());
  for (int repeat = 0; repeat < flags.repeats; ++repeat) {
    dram_read.push_back(probe.DramReadGbps());
    fma.push_back(probe.FmaGflops());
    for (size_t i = 0; i < cases.size(); ++i) {
      ASSIGN_OR_RETURN(const double sample, Sample(cases[i]));
      seconds[i].push_back(sample);
    }
  }

  const Ceilings ceilings = {Median(dram_read), Median(fma)};
  Json report = {{"threads", flags.threads},
                 {"repeats", flags.repeats},
                 {"ceilings",
                  {{"dram_read_gbytes_per_s", ceilings.dram_read_gbps},
                   {"fma_gflops_per_s", ceilings.fma_gflops}}}};
  fmt::print("ceilings: DRAM read {:.1f} GB/s, f32 FMA {:.1f} GFLOP/s\n", ceilings.dram_read_gbps,
             ceilings.fma_gflops);
  fmt::print("{:<18}{:<22}{:>13}{:>13}\n", "op", "shape", "median", "best");
  for (size_t i = 0; i < cases.size(); ++i) {
    report["results"].push_back(Row(cases[i], seconds[i], ceilings));
    Print(report["results"].back());
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
  return tandem::ExitCode("kernel_bench", tandem::Main(argc, argv));
}
