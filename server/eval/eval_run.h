#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/commands/client.h"
#include "server/eval/eval_result.h"
#include "server/eval/eval_windows.h"

namespace tandem {

// A function that asks a router for the tokens of a text. `client` outlives it.
TokenizeText TokenizeAt(Client& client, Client::Timeout timeout);

// A request that forces the router to output the window's tokens and to report their
// log-probabilities.
v1::GenerateRequest ForcedRequest(const EvalWindow& window, const ServedAs& served,
                                  int32_t num_logprobs, const std::string& cache_salt);

// Sends each window once as the baseline and once as the tested request, one after the other.
class EvalRun {
 public:
  using Progress = std::function<void(int64_t done, int64_t total)>;  // counted in windows

  // `name` must differ from the name of every other run at these routers: it keeps requests from
  // finding a prefix that another run has cached, because KV that is cached does not move. `tls`:
  // the client's files for both routers.
  EvalRun(EvalSubject subject, std::string name, Client::Timeout timeout, const TlsFiles& tls = {});

  // Runs all windows. An error names the window and the request. FAILED_PRECONDITION when no model
  // computes the tokens, or when the router does not support forced outputs.
  absl::StatusOr<EvalResult> Run(const std::vector<EvalWindow>& windows, const Progress& progress);

 private:
  absl::StatusOr<WindowResult> Compare(const EvalWindow& window, size_t index);

  const EvalSubject subject_;
  Client baseline_client_;
  Client tested_client_;
  const std::string name_;
  const Client::Timeout timeout_;
};

}  // namespace tandem
