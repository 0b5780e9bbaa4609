// tandem calibrate-kv: measures which layers' KV a model is sensitive to.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/status.h"
#include "base/utf8.h"
#include "engine/profile/kv_sensitivity_file.h"
#include "engine/profile/measure_kv_sensitivity.h"
#include "fmt/format.h"
#include "model/checkpoint/checkpoint.h"
#include "model/tokenizer/tokenizer.h"
#include "server/assembly/model_fingerprint.h"
#include "server/commands/commands.h"
#include "server/commands/output_file.h"
#include "server/commands/progress_bar.h"
#include "server/eval/eval_texts.h"

namespace tandem {
namespace {

struct CalibrateKvFlags {
  ModelSource source;
  std::string weights = "stored";
  std::vector<std::string> inputs;
  std::string out;  // empty: kKvSensitivityFile in the folder of the model
};

// More text is not tokenized: so much has enough tokens with every tokenizer.
constexpr size_t kMostTextBytes = 1 << 20;

absl::StatusOr<std::string> CalibrationText(const std::vector<std::string>& paths) {
  std::string all;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(const std::vector<EvalText> texts, ReadEvalTexts(path));
    for (const EvalText& one : texts) all.append(all.empty() ? "" : "\n").append(one.text);
  }
  if (all.size() <= kMostTextBytes) return all;
  return all.substr(0, ValidUtf8Prefix(std::string_view(all).substr(0, kMostTextBytes)));
}

// The first tokens of the texts, as many as a measurement takes.
absl::StatusOr<std::vector<int32_t>> CalibrationTokens(const CalibrateKvFlags& flags) {
  ASSIGN_OR_RETURN(const std::string text, CalibrationText(flags.inputs));
  ASSIGN_OR_RETURN(const auto tokenizer, LoadTokenizer(flags.source.model_dir));
  ASSIGN_OR_RETURN(std::vector<int32_t> tokens,
                   tokenizer->Encode(text, {.special_tokens = SpecialTokens::kAsText}));
  if (std::ssize(tokens) < kSensitivityTokens) {
    return InvalidArgument(
        "the texts of --input have {} tokens, and {} are needed: give a longer text, or several",
        tokens.size(), kSensitivityTokens);
  }
  tokens.resize(static_cast<size_t>(kSensitivityTokens));
  return tokens;
}

absl::StatusOr<uint64_t> FingerprintOf(const ModelSource& source) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint,
                   Checkpoint::Open(source.model_dir));
  return FingerprintModel(source.model_dir, *checkpoint, source.weights_as);
}

// All numbers divided by their geometric mean. Only their ratios matter, which span orders of
// magnitude.
std::string TableOf(const KvSensitivity& sensitivity) {
  double logs = 0;
  for (const float k : sensitivity.k) logs += std::log(k);
  for (const float v : sensitivity.v) logs += std::log(v);
  const size_t num_layers = sensitivity.k.size();
  const double mean = std::exp(logs / static_cast<double>(2 * num_layers));
  std::string table = fmt::format("{:>5}  {:>9}  {:>9}\n", "layer", "K", "V");
  for (size_t layer = 0; layer < num_layers; ++layer) {
    table += fmt::format("{:>5}  {:>9.3f}  {:>9.3f}\n", layer, sensitivity.k[layer] / mean,
                         sensitivity.v[layer] / mean);
  }
  return table;
}

absl::Status RunCalibrateKv(CalibrateKvFlags& flags) {
  ModelSource& source = flags.source;
  if (flags.out.empty()) flags.out = source.model_dir + "/" + kKvSensitivityFile;
  source.device = ResolveDeviceName(source.device);
  ASSIGN_OR_RETURN(source.weights_as, ParseWeightsAs(flags.weights));
  MeasuredKvSensitivity measured;
  ASSIGN_OR_RETURN(measured.model_fingerprint, FingerprintOf(source));
  RETURN_IF_ERROR(CheckWritable(flags.out));
  ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, CalibrationTokens(flags));
  ProgressBar bar("predictions");
  ASSIGN_OR_RETURN(measured.sensitivity,
                   MeasureKvSensitivity(source, tokens, [&bar](int64_t done, int64_t total) {
                     bar.Update(done, total);
                   }));
  RETURN_IF_ERROR(WriteWhole(flags.out, WriteKvSensitivity(measured)));
  fmt::print(
      "How much predictions change when K or V of one layer is rounded; 1 is their geometric mean\n"
      "{}written: {}\n",
      TableOf(measured.sensitivity), flags.out);
  return absl::OkStatus();
}

void AddCalibrateKvFlags(CLI::App& app, CalibrateKvFlags& flags) {
  ModelSource& source = flags.source;
  app.add_option("--model", source.model_dir, "folder of the checkpoint")->required();
  app.add_option("--input", flags.inputs,
                 "file of text, or of a JSON object with \"text\" per line where its name ends in "
                 ".jsonl; may be repeated")
      ->required();
  app.add_option(
      "--out", flags.out,
      fmt::format("file to write; default: {} in the folder of --model", kKvSensitivityFile));
  app.add_option("--device", source.device,
                 "cpu, cpu-bf16, cpu-auto (the faster of these here), or a GPU such as cuda:0")
      ->capture_default_str();
  app.add_option("--threads", source.threads, "of the CPU backend; 0: one per core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--weights", flags.weights, fmt::format("as of the workers: {}", kWeightsAsNames))
      ->capture_default_str();
}

}  // namespace

void AddCalibrateKvCommand(CLI::App& app, Action& chosen) {
  auto flags = std::make_shared<CalibrateKvFlags>();
  CLI::App* calibrate =
      app.add_subcommand("calibrate-kv", "Measure which layers' KV must be rounded in finer steps");
  AddCalibrateKvFlags(*calibrate, *flags);
  calibrate->footer(fmt::format(
      "Takes {} tokens from the beginning of the texts, which should be like those that the model\n"
      "is to serve. Prefill workers read the file when they start, from the folder of their "
      "model.\n"
      "Example:\n"
      "  tandem calibrate-kv --model models/sample --input book.txt",
      kSensitivityTokens));
  calibrate->callback([flags, &chosen] {
    chosen = [flags] {
      const absl::Status status = RunCalibrateKv(*flags);
      return status.ok() ? kExitOk : PrintError(status);
    };
  });
}

}  // namespace tandem
