#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace CLI {
class App;
}

namespace tandem {

// How tokens are chosen, as `tandem generate` and `tandem chat` name it. What is not given takes
// the server's default.
struct SamplingFlags {
  std::optional<float> temperature;
  std::optional<int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;
  std::optional<uint64_t> seed;
  std::vector<std::string> logit_bias;  // ID=BIAS
  std::vector<int32_t> allowed_token_ids;
  std::vector<std::string> bad_words;
};

// The flags of `tandem generate` and `tandem chat` that say where an output ends. A parameter that
// is not given takes the server's default.
struct EndFlags {
  std::optional<int32_t> max_tokens;
  std::vector<std::string> stop;
  bool include_stop = false;
  std::optional<int32_t> min_tokens;
  std::vector<int32_t> stop_token_ids;
  bool ignore_eos = false;
};

// The groups in which --help lists the flags of sampling and of the output's end.
inline constexpr char kSamplingGroup[] = "Sampling (unset: the server's default)";
inline constexpr char kEndGroup[] = "Where it ends";

void AddSamplingFlags(CLI::App& command, SamplingFlags& flags);
// `max_tokens_default`: the default that the help of --max-tokens names.
void AddEndFlags(CLI::App& command, EndFlags& flags, const std::string& max_tokens_default);

// The entries of --logit-bias by token id.
absl::StatusOr<std::map<int32_t, float>> ParseBiases(const std::vector<std::string>& entries);

// INVALID_ARGUMENT unless `text` is UTF-8; the error calls the text by the name `what`.
absl::Status CheckUtf8(std::string_view what, std::string_view text);

}  // namespace tandem
