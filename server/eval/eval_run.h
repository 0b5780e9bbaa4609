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

// Asks a router for the tokens of a text.
TokenizeText TokenizeAt(Client& client, Client::Timeout timeout);

// The request that has the router output the window's tokens.
v1::GenerateRequest ForcedRequest(const EvalWindow& window, const ServedAs& served,
                                  int32_t num_logprobs, const std::string& cache_salt);

// Sends each window once as the baseline and once as the tested request, one after the other.
class EvalRun {
 public:
  using Progress = std::function<void(int64_t done, int64_t total)>;  // windows

  // `name` must differ from that of every other run at these routers: no request may find a prefix of
  // another run cached, because KV that is cached does not move.
  // `tls`: of a client, for both routers.
  EvalRun(EvalSubject subject, std::string name, Client::Timeout timeout, const TlsFiles& tls = {});

  // An error names the window and the request. FAILED_PRECONDITION when no model computes the tokens, or
  // when the router does not know forced outputs.
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
