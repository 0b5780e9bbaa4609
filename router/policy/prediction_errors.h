#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "router/cluster/worker_view.h"

namespace tandem {

// What a cost model predicts of one request.
enum class PredictionTerm : uint8_t {
  kTtft,
  kTpot,
  kE2e,
  kQueue,
  kPrefill,
  kTransfer,
  kAdmission,
  kDecode,
  kMessages,  // between router and workers, before the first token
  kHandOff,   // what of a transfer the bytes on the link do not explain
};
inline constexpr size_t kNumPredictionTerms = 10;
inline constexpr std::array<std::string_view, kNumPredictionTerms> kPredictionTermNames = {
    "ttft",     "tpot",      "e2e",    "queue",    "prefill",
    "transfer", "admission", "decode", "messages", "hand_off"};

// How wrong the predictions of recent requests were, for policies that ask how much to trust a
// predicted difference; and times that only past requests tell. An error is the mean of |predicted
// - actual| / actual; that of a stage is divided by the TTFT (queue, prefill, admission, messages)
// or E2E (transfer, hand_off, decode) that it is part of. Nothing is returned until enough requests
// were compared.
// Thread-safe.
class PredictionErrors {
 public:
  virtual ~PredictionErrors() = default;

  // The error of a term over all requests.
  virtual std::optional<double> Overall(PredictionTerm term) const = 0;
  // The error of a term over the requests that the worker computed: ttft, queue and prefill over
  // those that it prefilled; tpot, e2e, admission and decode over those that it decoded. Nothing
  // for transfer, whose error OfLink has.
  virtual std::optional<double> OfWorker(PredictionTerm term, const WorkerId& worker) const = 0;
  // How long the messages before the first token took of recent requests that this worker
  // prefilled, in ms: calls and answers between the router and all workers of a request. A cost
  // model knows nothing of them, because workers measure only themselves.
  virtual std::optional<double> MessagesMs(const WorkerId& prefill) const = 0;
  // How much longer recent requests waited for their KV between these two workers than its bytes
  // took, in ms: both workers turn to a hand-off between their steps, and the link has its own
  // messages.
  virtual std::optional<double> HandOffMs(const WorkerId& prefill,
                                          const WorkerId& decode) const = 0;
  // The error of the transfer between these two workers.
  virtual std::optional<double> OfLink(const WorkerId& prefill, const WorkerId& decode) const = 0;
};

}  // namespace tandem
