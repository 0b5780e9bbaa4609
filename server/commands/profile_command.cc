// tandem profile: measures the steps of a model on this machine and fits the cost model to them.
#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>

#include "CLI/CLI.hpp"
#include "base/machine_name.h"
#include "base/status.h"
#include "engine/profile/cost_parameters.h"
#include "engine/profile/measure_links.h"
#include "engine/profile/measure_steps.h"
#include "engine/profile/step_plan.h"
#include "engine/profile/step_session.h"
#include "model/checkpoint/checkpoint.h"
#include "server/admin/profile_report.h"
#include "server/assembly/model_fingerprint.h"
#include "server/assembly/model_name.h"
#include "server/assembly/worker_options.h"
#include "server/commands/commands.h"
#include "server/commands/output_file.h"
#include "server/commands/progress_bar.h"
#include "server/commands/size_flag.h"
#include "server/commands/version.h"

namespace tandem {
namespace {

struct ProfileFlags {
  StepSession::Options session = {.max_step_tokens = 0, .max_sequences = 0};
  std::string weights = "stored";
  std::string kv_dtype = "auto";
  uint64_t kv_bytes = uint64_t{1} << 30;
  MeasureOptions measure;
  bool quick = false;
  std::string out = "cost_model.json";
  std::string report;
  std::string check;
  std::string links = "on";
};

// The limits of a full profile, unless flags set them. 0 tokens of context: as many as memory has
// room for.
constexpr StepLimits kFullLimits = {
    .max_step_tokens = 512, .max_sequences = 64, .max_context_tokens = 0};
// A quick profile repeats noisy measurements of steps only until this much time has passed, so that
// it ends within a minute, its links included.
constexpr Duration kQuickTime = std::chrono::seconds(30);
constexpr StepLimits kQuickLimits = {
    .max_step_tokens = 256, .max_sequences = 16, .max_context_tokens = 512};

std::string Today() {
  const std::time_t now = std::time(nullptr);
  char text[sizeof("2000-01-01")];
  std::strftime(text, sizeof(text), "%Y-%m-%d", std::gmtime(&now));
  return text;
}

absl::StatusOr<CostProvenance> ProvenanceHere(const ProfileFlags& flags) {
  const std::string& directory = flags.session.model_dir;
  ASSIGN_OR_RETURN(ModelConfig config, LoadModelConfig(directory));
  ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint, Checkpoint::Open(directory));
  AdoptDType(*checkpoint, config);
  ASSIGN_OR_RETURN(const uint64_t fingerprint,
                   FingerprintModel(directory, *checkpoint, flags.session.weights_as));
  return CostProvenance{
      .machine = MachineName(),
      .device = flags.session.device,
      .threads = flags.session.threads,
      .model = ModelNameFor(directory),
      .model_fingerprint = fingerprint,
      .dtype = std::string(NameOfWeights(flags.session.weights_as, config.dtype)),
      .kv_dtype = std::string(Name(flags.session.kv_dtype.value_or(config.dtype))),
      .block_tokens = flags.session.block_tokens,
      .build = kVersion,
      .measured = Today()};
}

absl::Status CompleteFlags(ProfileFlags& flags) {
  StepSession::Options& session = flags.session;
  session.device = ResolveDeviceName(session.device);
  const StepLimits& limits = flags.quick ? kQuickLimits : kFullLimits;
  if (session.max_step_tokens == 0) session.max_step_tokens = limits.max_step_tokens;
  if (session.max_sequences == 0) session.max_sequences = limits.max_sequences;
  if (session.max_context_tokens == 0) session.max_context_tokens = limits.max_context_tokens;
  if (flags.quick) flags.measure.max_time = kQuickTime;
  session.max_kv_bytes = static_cast<int64_t>(flags.kv_bytes);
  ASSIGN_OR_RETURN(session.weights_as, ParseWeightsAs(flags.weights));
  if (flags.kv_dtype == "auto") return absl::OkStatus();
  session.kv_dtype = DTypeFromName(flags.kv_dtype);
  if (session.kv_dtype && IsKvType(*session.kv_dtype)) return absl::OkStatus();
  return InvalidArgument("--kv-dtype {} is unknown; use auto, {}", flags.kv_dtype, kKvTypeNames);
}

absl::Status CheckFile(const ProfileFlags& flags) {
  ASSIGN_OR_RETURN(const CostParameters parameters, LoadCostParameters(flags.check));
  ASSIGN_OR_RETURN(const CostProvenance here, ProvenanceHere(flags));
  RETURN_IF_ERROR(Annotate(CheckProvenance(parameters.provenance, here), flags.check));
  fmt::print("{} fits this machine and this model\n{}", flags.check, ProfileText(parameters, {}));
  return absl::OkStatus();
}

absl::Status RunProfile(ProfileFlags& flags) {
  RETURN_IF_ERROR(CompleteFlags(flags));
  if (!flags.check.empty()) return CheckFile(flags);
  RETURN_IF_ERROR(CheckWritable(flags.out));
  RETURN_IF_ERROR(CheckWritable(flags.report));
  CostParameters parameters;
  ASSIGN_OR_RETURN(parameters.provenance, ProvenanceHere(flags));
  ASSIGN_OR_RETURN(const std::unique_ptr<StepSession> session,
                   StepSession::Open(flags.session, nullptr));
  const std::vector<PlannedStep> plan = PlanSteps(
      session->limits(), flags.quick ? PlanSize::kQuick : PlanSize::kFull, flags.measure.seed);
  const StepLimits& limits = session->limits();
  fmt::print(
      stderr,
      "{} kinds of steps, {} runs each: up to {} tokens, {} sequences, {} tokens of context\n",
      plan.size(), flags.measure.repeats, limits.max_step_tokens, limits.max_sequences,
      limits.max_context_tokens);
  ProgressBar progress("steps");
  ASSIGN_OR_RETURN(
      const std::vector<MeasuredStep> steps,
      MeasureSteps(
          plan, flags.measure, [&session](const StepShape& shape) { return session->Run(shape); },
          [&progress](int64_t done, int64_t total) { progress.Update(done, total); }));
  std::vector<StepSample> samples;
  for (const MeasuredStep& step : steps) samples.push_back(step.sample);
  ASSIGN_OR_RETURN(StepFit fit, FitSteps(samples, flags.measure.seed));
  parameters.steps = std::move(fit.coefficients);
  parameters.intervals = std::move(fit.intervals);
  parameters.held_out = std::move(fit.held_out);
  if (flags.links == "on") {
    ASSIGN_OR_RETURN(parameters.links, MeasureLinks(session->layout(), session->device()));
  }
  RETURN_IF_ERROR(WriteWhole(flags.out, WriteCostParameters(parameters)));
  if (!flags.report.empty()) {
    RETURN_IF_ERROR(WriteWhole(flags.report, ProfilePage(parameters, steps)));
  }
  fmt::print("{}written: {}{}\n", ProfileText(parameters, steps), flags.out,
             flags.report.empty() ? "" : " and " + flags.report);
  return absl::OkStatus();
}

void AddProfileFlags(CLI::App& app, ProfileFlags& flags) {
  StepSession::Options& session = flags.session;
  app.add_option("--model", session.model_dir, "folder of the checkpoint")->required();
  app.add_option("--out", flags.out, "parameter file to write")->capture_default_str();
  app.add_option("--report", flags.report, "HTML page with plots to write");
  app.add_option("--check", flags.check,
                 "measure nothing: say whether this parameter file fits the machine, the model and "
                 "the other flags");
  app.add_flag("--quick", flags.quick, "fewer and smaller steps");
  app.add_option("--device", session.device,
                 "cpu, cpu-bf16, cpu-auto (the faster of these here), or a GPU such as cuda:0")
      ->capture_default_str();
  app.add_option("--threads", session.threads, "of the CPU backend; 0: one per core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--weights", flags.weights, kWeightsAsNames)->capture_default_str();
  app.add_option("--kv-dtype", flags.kv_dtype, fmt::format("auto, {}", kKvTypeNames))
      ->capture_default_str();
  app.add_option("--block-tokens", session.block_tokens, "tokens per KV block")
      ->check(CLI::Range(8, 256))
      ->capture_default_str();
  app.add_option("--max-step-tokens", session.max_step_tokens,
                 "of the largest step (512; --quick: 256)")
      ->check(CLI::Range(32, 65536));
  app.add_option("--max-sequences", session.max_sequences,
                 "that decode in one step (64; --quick: 16)")
      ->check(CLI::Range(8, 1024));
  app.add_option("--max-context", session.max_context_tokens,
                 "of each sequence (what --kv-bytes and the model allow; --quick: 512)")
      ->check(CLI::Range(64, 1 << 24));
  app.add_option("--kv-bytes", flags.kv_bytes, "memory for KV, as 512MiB")
      ->transform(SizeFlag(Kilo::k1024))
      ->capture_default_str();
  app.add_option("--repeats", flags.measure.repeats, "runs of each kind of step")
      ->check(CLI::Range(30, 10000))
      ->capture_default_str();
  app.add_option("--links", flags.links,
                 "measure transfers over shared memory and loopback TCP: on, off")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  app.add_option("--seed", flags.measure.seed, "of the steps and their order")
      ->capture_default_str();
}

}  // namespace

void AddProfileCommand(CLI::App& app, Action& chosen) {
  auto flags = std::make_shared<ProfileFlags>();
  CLI::App* profile =
      app.add_subcommand("profile", "Measure what steps cost here, and fit the cost model");
  AddProfileFlags(*profile, *flags);
  profile->footer(
      "The machine should be otherwise idle. Steps whose repeats differ much are measured again,\n"
      "and listed when they stay so.\n"
      "Example:\n"
      "  tandem profile --model models/sample --quick --report profile.html");
  profile->callback([flags, &chosen] {
    chosen = [flags] {
      const absl::Status status = RunProfile(*flags);
      return status.ok() ? kExitOk : PrintError(status);
    };
  });
}

}  // namespace tandem
