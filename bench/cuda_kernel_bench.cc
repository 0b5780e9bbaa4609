// How fast the CUDA kernels run, beside what the device does at best in the same run:
//   cuda_kernel_bench [--device cuda:0] [--sections ceilings,decode,...] [--filter TEXT]
//                     [--repeats 50] [--launches 20] [--scale 1] [--commit ID] [--json FILE]
// Ceilings are always measured. A launch is timed as part of a graph of many, each on data of its
// own that together are several times the cache; graphs are replayed turn by turn, and the median
// of the replays counts. Data is random, of a normal distribution, blocks lie in random order,
// outputs are NaN before they are checked. Bytes and FLOPs are what an op must at least move and
// compute (kernels/op_cost.h). With --scale below 1 every size shrinks, which shows that all of it
// runs, and says nothing of time.

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "bench/cuda_bench.h"
#include "bench/cuda_sections.h"
#include "bench/flags.h"

namespace tandem {
namespace {

struct Section {
  std::string_view name;
  absl::Status (*run)(CudaBench& bench);
};
constexpr Section kSections[] = {
    {"decode", DecodeSection},  {"prefill", PrefillSection}, {"movement", MovementSection},
    {"small", SmallOpsSection}, {"gemm", GemmSection},       {"sampling", SamplingSection},
};

struct Flags {
  CudaBenchOptions options;
  std::string sections;  // empty: all
  std::string commit;
  std::string json_path;
};

absl::StatusOr<Flags> ParseFlags(int argc, char** argv) {
  Flags flags;
  FlagParser parser;
  parser.Text("--device", flags.options.device);
  parser.Text("--sections", flags.sections);
  parser.Text("--filter", flags.options.filter);
  parser.Count("--repeats", flags.options.repeats);
  parser.Count("--launches", flags.options.max_launches);
  parser.Real("--scale", flags.options.scale);
  parser.Text("--commit", flags.commit);
  parser.Text("--json", flags.json_path);
  RETURN_IF_ERROR(parser.Parse(argc, argv));
  return flags;
}

bool Chosen(std::string_view sections, std::string_view name) {
  if (sections.empty()) return true;
  while (!sections.empty()) {
    const std::string_view word = sections.substr(0, sections.find(','));
    if (word == name) return true;
    sections.remove_prefix(std::min(sections.size(), word.size() + 1));
  }
  return false;
}

absl::Status Main(int argc, char** argv) {
  ASSIGN_OR_RETURN(const Flags flags, ParseFlags(argc, argv));
  ASSIGN_OR_RETURN(const auto bench, CudaBench::Open(flags.options));
  bench->ReportTo({"cuda_kernels", flags.commit, flags.json_path});
  RETURN_IF_ERROR(MeasureCeilings(*bench));
  for (const Section& section : kSections) {
    if (Chosen(flags.sections, section.name)) RETURN_IF_ERROR(section.run(*bench));
  }
  return bench->first_error();
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::ExitCode("cuda_kernel_bench", tandem::Main(argc, argv));
}
