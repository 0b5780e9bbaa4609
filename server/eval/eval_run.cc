#include "server/eval/eval_run.h"

#include <optional>
#include <span>
#include <utility>

#include "base/status.h"
#include "server/commands/generation.h"

namespace tandem {
namespace {

// Checks that the output is the one that was forced, and that a model computed its
// log-probabilities.
absl::Status CheckAnswer(const EvalWindow& window, const Generation& generation) {
  if (generation.summary.simulated()) {
    return FailedPrecondition("the server is simulated: no model computes its log-probabilities");
  }
  if (generation.choices.size() != 1 || generation.choices[0].token_ids != window.output) {
    return FailedPrecondition(
        "the output is not the one that was forced: the router or a worker is of an older version");
  }
  const size_t known = generation.choices[0].logprobs.size();
  if (known != window.output.size()) {
    return Internal("log-probabilities of {} tokens came for an output of {}", known,
                    window.output.size());
  }
  return absl::OkStatus();
}

absl::StatusOr<Generation::Choice> Ask(Client& client, const EvalWindow& window,
                                       const v1::GenerateRequest& request,
                                       Client::Timeout timeout) {
  Generation generation;
  RETURN_IF_ERROR(
      client.Generate(request, timeout, [&generation](const v1::GenerateResponse& event) {
        generation.Add(event);
        return true;
      }));
  RETURN_IF_ERROR(CheckAnswer(window, generation));
  return std::move(generation.choices[0]);
}

// Whether greedy decoding would have given the answer at the end of the window; nothing where the
// window has no answer. `choice` has the log-probabilities of the whole output.
std::optional<bool> IsFound(const EvalWindow& window, const Generation::Choice& choice) {
  if (window.answer_tokens == 0) return std::nullopt;
  return AreMostProbable(
      std::span(choice.logprobs).last(static_cast<size_t>(window.answer_tokens)));
}

}  // namespace

TokenizeText TokenizeAt(Client& client, Client::Timeout timeout) {
  return [&client, timeout](std::string_view text,
                            Template add_template) -> absl::StatusOr<std::vector<int32_t>> {
    v1::TokenizeRequest request;
    request.set_text(std::string(text));
    request.set_omit_template(add_template == Template::kOmit);
    ASSIGN_OR_RETURN(const v1::TokenizeResponse response, client.Tokenize(request, timeout));
    return std::vector<int32_t>(response.token_ids().begin(), response.token_ids().end());
  };
}

v1::GenerateRequest ForcedRequest(const EvalWindow& window, const ServedAs& served,
                                  int32_t num_logprobs, const std::string& cache_salt) {
  v1::GenerateRequest request;
  request.mutable_token_ids()->mutable_ids()->Add(window.prompt.begin(), window.prompt.end());
  request.mutable_forced_token_ids()->Add(window.output.begin(), window.output.end());
  request.mutable_sampling()->set_logprobs(num_logprobs);
  request.set_route(served.route);
  request.set_kv_quality(served.quality);
  request.set_kv_eviction(served.eviction);
  request.set_cache_salt(cache_salt);
  return request;
}

EvalRun::EvalRun(EvalSubject subject, std::string name, Client::Timeout timeout,
                 const TlsFiles& tls)
    : subject_(std::move(subject)),
      baseline_client_(subject_.baseline.router, tls),
      tested_client_(subject_.tested.router, tls),
      name_(std::move(name)),
      timeout_(timeout) {}

absl::StatusOr<EvalResult> EvalRun::Run(const std::vector<EvalWindow>& windows,
                                        const Progress& progress) {
  EvalResult result{.subject = subject_, .windows = {}};
  for (size_t i = 0; i < windows.size(); ++i) {
    absl::StatusOr<WindowResult> compared = Compare(windows[i], i);
    if (!compared.ok()) return Annotate(compared.status(), windows[i].name);
    result.windows.push_back(*std::move(compared));
    progress(static_cast<int64_t>(i + 1), static_cast<int64_t>(windows.size()));
  }
  return result;
}

absl::StatusOr<WindowResult> EvalRun::Compare(const EvalWindow& window, size_t index) {
  const auto ask = [&](Client& client, const ServedAs& served, std::string_view which) {
    const v1::GenerateRequest request = ForcedRequest(window, served, subject_.num_logprobs,
                                                      fmt::format("{}-{}-{}", name_, which, index));
    absl::StatusOr<Generation::Choice> choice = Ask(client, window, request, timeout_);
    if (choice.ok()) return choice;
    return absl::StatusOr<Generation::Choice>(
        Annotate(choice.status(), fmt::format("the {} request", which)));
  };
  ASSIGN_OR_RETURN(const Generation::Choice baseline,
                   ask(baseline_client_, subject_.baseline, "baseline"));
  ASSIGN_OR_RETURN(const Generation::Choice tested, ask(tested_client_, subject_.tested, "tested"));
  ASSIGN_OR_RETURN(const PredictionChange change,
                   ComparePredictions(baseline.logprobs, tested.logprobs));
  return WindowResult{.name = window.name,
                      .change = change,
                      .baseline_route = baseline.finish.route(),
                      .route = tested.finish.route(),
                      .kv = tested.finish.kv_bytes(),
                      .baseline_found = IsFound(window, baseline),
                      .found = IsFound(window, tested)};
}

}  // namespace tandem
