#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "router/policy/slo.h"
#include "router/request/kv_fields.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// What the served model allows a request to be.
struct RequestLimits {
  std::string model;                   // the name of the model that is served
  int32_t vocab_size = 0;              // ids are in [0, vocab_size)
  int32_t max_context_tokens = 0;      // prompt and output together
  std::vector<int32_t> eos_token_ids;  // end a choice unless the client ignores them
  bool has_tokenizer = false;          // without one, text and stop strings cannot be served
  // Tokenizer::MaxBytesPerToken: longer texts are refused before they are tokenized.
  std::optional<size_t> max_bytes_per_token = {};
  int32_t default_max_tokens = 256;
  Slo default_slo = {};
  KvDefaults default_kv = {};
  int32_t max_choices = 64;           // n and best_of
  int32_t max_beam_candidates = 128;  // most probable tokens looked at in a step of all beams
  int32_t max_stop_strings = 16;
  int32_t max_stop_bytes = 512;  // of one stop string, and of one bad word
  int32_t max_stop_token_ids = 64;
};

// Checks every field that can be judged without tokenizing. INVALID_ARGUMENT names the field and
// its value, NOT_FOUND a model that is not served. No message repeats text of the prompt.
absl::Status ValidateRequest(const v1::GenerateRequest& request, const RequestLimits& limits);

// The number of tokens to generate for a prompt of this length: the forced ones, or what the client
// asks for, or the default, or min_tokens if that is more, cut to what the context leaves.
// INVALID_ARGUMENT when prompt or sum do not fit into the context, or when the number is less than
// min_tokens.
absl::StatusOr<int32_t> ResolveMaxTokens(const v1::GenerateRequest& request, int64_t prompt_tokens,
                                         const RequestLimits& limits);

// Leaves only the last tokens of a prompt, where the client wants that.
template <typename Ids>
void TruncatePrompt(const v1::GenerateRequest& request, Ids& ids) {
  if (!request.has_truncate_prompt_tokens()) return;
  const auto kept = std::min<int64_t>(request.truncate_prompt_tokens(), ids.size());
  ids.erase(ids.begin(), ids.end() - kept);
}

// The sampling fields with every default filled in. `seed` is used where the client gave none.
v1::SamplingParams ResolveSampling(const v1::SamplingParams& params, uint64_t seed);

// The beam search with every default filled in.
v1::BeamSearch ResolveBeams(const v1::GenerateRequest& request);

// The client's SLOs, and the default for each that it did not give.
Slo ResolveSlo(const v1::GenerateRequest& request, const RequestLimits& limits);

// The tokens that end a choice: the client's, and EOS unless it is ignored. Sorted, each once. None
// for a forced output.
std::vector<int32_t> ResolveStopTokens(const v1::GenerateRequest& request,
                                       const RequestLimits& limits);

// The choices to sample: best_of, else n. Of a beam search the hypotheses to return, n.
int32_t ResolveChoices(const v1::GenerateRequest& request);

}  // namespace tandem
