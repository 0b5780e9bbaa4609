// tandem eval: measures what a way of serving does to the predictions of the model.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include "CLI/CLI.hpp"
#include "base/sampling_params.h"
#include "base/status.h"
#include "fmt/format.h"
#include "server/commands/client.h"
#include "server/commands/commands.h"
#include "server/commands/kv_flags.h"
#include "server/commands/output_file.h"
#include "server/commands/progress_bar.h"
#include "server/commands/route_flag.h"
#include "server/commands/tls_flags.h"
#include "server/eval/eval_report.h"
#include "server/eval/eval_run.h"
#include "server/eval/eval_texts.h"
#include "server/eval/eval_windows.h"
#include "server/eval/planted_text.h"

namespace tandem {
namespace {

struct EvalFlags {
  std::string router = kDefaultServer;
  TlsFiles tls;                 // for both routers
  std::string baseline_router;  // empty: the same as `router`
  std::vector<std::string> inputs;
  WindowPlan plan;
  std::string planted;  // empty: no fact
  std::string route = "disaggregated";
  std::string baseline_route = "unified";
  std::string quality;
  std::string evict;
  int32_t logprobs = kMaxLogprobs;
  double timeout_seconds = 600;
  std::string json;
  std::string html;
};

absl::StatusOr<std::vector<EvalText>> ReadInputs(const std::vector<std::string>& paths) {
  std::vector<EvalText> texts;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(std::vector<EvalText> more, ReadEvalTexts(path));
    std::ranges::move(more, std::back_inserter(texts));
  }
  return texts;
}

// The name of the model that the router serves, which must have room for a window: it would be
// refused only once texts are tokenized.
absl::StatusOr<std::string> ModelAt(Client& client, const WindowPlan& plan,
                                    Client::Timeout timeout) {
  ASSIGN_OR_RETURN(const v1::GetStatusResponse status, client.GetStatus(timeout));
  const int64_t window = int64_t{plan.prompt_tokens} + plan.output_tokens;
  if (window <= status.max_context_tokens()) return status.model();
  return InvalidArgument(
      "--prompt-tokens {} and --output-tokens {} exceed the context of {} tokens of {}",
      plan.prompt_tokens, plan.output_tokens, status.max_context_tokens(), status.model());
}

std::optional<PlantedQuestion> PlantedBy(const EvalFlags& flags) {
  if (flags.planted.empty()) return std::nullopt;
  return kPlantedQuestions.at(flags.planted);
}

// The plan of windows. Where facts are planted, the outputs are answers and not parts of the texts.
WindowPlan PlanOf(const EvalFlags& flags) {
  WindowPlan plan = flags.plan;
  if (!flags.planted.empty()) plan.output_tokens = 0;
  return plan;
}

EvalSubject SubjectOf(const EvalFlags& flags) {
  const std::string& baseline_router =
      flags.baseline_router.empty() ? flags.router : flags.baseline_router;
  return {.model = "",
          .baseline = {.router = baseline_router,
                       .route = kRoutesByName.at(flags.baseline_route),
                       .quality = "exact"},
          .tested = {.router = flags.router,
                     .route = kRoutesByName.at(flags.route),
                     .quality = flags.quality,
                     .eviction = flags.evict},
          .plan = PlanOf(flags),
          .num_logprobs = flags.logprobs,
          .planted = PlantedBy(flags)};
}

// Asks both routers for their model. Another one may have other tokens.
absl::Status SetModel(Client& client, const TlsFiles& tls, Client::Timeout timeout,
                      EvalSubject& subject) {
  ASSIGN_OR_RETURN(subject.model, ModelAt(client, subject.plan, timeout));
  const std::string& other = subject.baseline.router;
  if (other == subject.tested.router) return absl::OkStatus();
  Client baseline(other, tls);
  ASSIGN_OR_RETURN(const std::string model, ModelAt(baseline, subject.plan, timeout));
  if (model == subject.model) return absl::OkStatus();
  return FailedPrecondition("{} serves {}, but {} serves {}: their tokens may differ",
                            subject.tested.router, subject.model, other, model);
}

absl::StatusOr<std::vector<EvalWindow>> WindowsOf(const EvalSubject& subject,
                                                  const std::vector<std::string>& inputs,
                                                  const TokenizeText& tokenize) {
  ASSIGN_OR_RETURN(const std::vector<EvalText> texts, ReadInputs(inputs));
  ASSIGN_OR_RETURN(std::vector<EvalWindow> windows, MakeWindows(texts, subject.plan, tokenize));
  if (!subject.planted) return windows;
  return PlantFacts(std::move(windows), *subject.planted, tokenize);
}

// A name that no other run has.
std::string NewRunName() {
  std::random_device device;
  return fmt::format("eval-{:08x}{:08x}", device(), device());
}

absl::Status RunEval(const EvalFlags& flags) {
  RETURN_IF_ERROR(CheckWritable(flags.json));
  RETURN_IF_ERROR(CheckWritable(flags.html));
  const Client::Timeout timeout(static_cast<int64_t>(std::ceil(flags.timeout_seconds * 1e3)));
  Client client(flags.router, flags.tls);
  EvalSubject subject = SubjectOf(flags);
  RETURN_IF_ERROR(SetModel(client, flags.tls, timeout, subject));
  ASSIGN_OR_RETURN(const std::vector<EvalWindow> windows,
                   WindowsOf(subject, flags.inputs, TokenizeAt(client, timeout)));
  ProgressBar bar("windows");
  ASSIGN_OR_RETURN(const EvalResult result, EvalRun(subject, NewRunName(), timeout, flags.tls)
                                                .Run(windows, [&bar](int64_t done, int64_t total) {
                                                  bar.Update(done, total);
                                                }));
  fmt::print("{}", EvalTables(result));
  if (std::ssize(windows) < flags.plan.count) {
    fmt::print("The texts have {} windows, {} were wanted.\n", windows.size(), flags.plan.count);
  }
  if (!flags.json.empty()) RETURN_IF_ERROR(WriteWhole(flags.json, EvalJson(result)));
  if (!flags.html.empty()) RETURN_IF_ERROR(WriteWhole(flags.html, EvalPage(result)));
  return absl::OkStatus();
}

void AddEvalFlags(CLI::App& eval, EvalFlags& flags) {
  const CLI::IsMember routes({"auto", "unified", "disaggregated"});
  eval.add_option("--router,--server", flags.router, "host:port of the router")
      ->capture_default_str();
  AddClientTlsFlags(eval, flags.tls);
  eval.add_option("--input", flags.inputs,
                  "file of text, or of a JSON object with \"text\" and \"name\" per line where its "
                  "name ends in .jsonl; may be repeated")
      ->required();
  eval.add_option("--prompt-tokens", flags.plan.prompt_tokens, "of each window")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  CLI::Option* const output = eval.add_option("--output-tokens", flags.plan.output_tokens,
                                              "behind them, whose probabilities are compared")
                                  ->check(CLI::Range(1, 1 << 24))
                                  ->capture_default_str();
  eval.add_option("--planted", flags.planted,
                  "plants a fact in each prompt, whose output becomes the answer; the question is "
                  "known: at the end of the prompt, or later: at the beginning of the output")
      ->check(CLI::IsMember({"known", "later"}))
      ->excludes(output);
  eval.add_option("--prompts", flags.plan.count, "windows to compare at most")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  eval.add_option("--baseline-router", flags.baseline_router,
                  "host:port of another router that serves the baseline; default: --router");
  eval.add_option("--route", flags.route, "of the tested requests: auto, unified, disaggregated")
      ->check(routes)
      ->capture_default_str();
  eval.add_option(
          "--quality", flags.quality,
          "what the KV of the tested requests may lose on its way to a decode worker: exact, "
          "near-strict, near, compact or tiny; the router's, unless given")
      ->check(KvQualityText());
  eval.add_option("--evict", flags.evict,
                  "which KV of the tested prompts is given up once they are computed: none, or "
                  "POLICY:RATIO as h2o-ema:2; the router's, unless given")
      ->check(TokenEvictionText());
  eval.add_option("--baseline-route", flags.baseline_route, "of those they are compared with")
      ->check(routes)
      ->capture_default_str();
  eval.add_option("--logprobs", flags.logprobs, "most probable tokens that KL is computed over")
      ->check(CLI::Range(1, kMaxLogprobs))
      ->capture_default_str();
  eval.add_option("--timeout", flags.timeout_seconds, "seconds for each request")
      ->check(CLI::Range(1.0, 86400.0))
      ->capture_default_str();
  eval.add_option("--json", flags.json, "file to write with all numbers");
  eval.add_option("--html", flags.html, "page with plots to write");
}

}  // namespace

void AddEvalCommand(CLI::App& app, Action& chosen) {
  auto flags = std::make_shared<EvalFlags>();
  CLI::App* eval = app.add_subcommand(
      "eval", "Measure what a way of serving changes in the model's predictions");
  AddEvalFlags(*eval, *flags);
  eval->footer(
      "Takes windows of the texts: a prompt, and the tokens behind it. Each is served twice, as "
      "the\n"
      "baseline and as the tested request, and both times the output is those tokens, whatever "
      "the\n"
      "model would have said. The log-probabilities of the two are compared. KL is a lower bound "
      "of\n"
      "the divergence: over the most probable tokens of the baseline and one bucket for the rest.\n"
      "Example:\n"
      "  tandem eval --input book.txt --prompt-tokens 1024 --output-tokens 255 --html eval.html");
  eval->callback([flags, &chosen] {
    chosen = [flags] {
      const absl::Status status = RunEval(*flags);
      return status.ok() ? kExitOk : PrintError(status);
    };
  });
}

}  // namespace tandem
