#include "server/commands/sampling_flags.h"

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "base/status.h"
#include "base/utf8.h"
#include "server/commands/number_flag.h"

namespace tandem {

void AddSamplingFlags(CLI::App& command, SamplingFlags& flags) {
  const auto add = [&command](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->group(kSamplingGroup);
  };
  add("--temperature", flags.temperature, "0 is greedy; default 1");
  add("--top-k", flags.top_k, "keep the k most probable; 0: all");
  add("--top-p", flags.top_p, "keep the most probable that make up p; in (0, 1]");
  add("--min-p", flags.min_p, "drop what is less probable than p times the best");
  add("--repetition-penalty", flags.repetition_penalty, "over prompt and output; 1: none");
  add("--presence-penalty", flags.presence_penalty, "over the output; 0: none");
  add("--frequency-penalty", flags.frequency_penalty, "over the output; 0: none");
  add("--seed", flags.seed, "the same seed gives the same tokens on every route")
      ->check(NotNegative());  // else CLI11 would read -1 as the largest unsigned number
  add("--logit-bias", flags.logit_bias, "ID=BIAS,...: added to the logits; BIAS in [-100, 100]")
      ->delimiter(',');
  add("--allowed-token-ids", flags.allowed_token_ids, "sample only these: 1,2,3")->delimiter(',');
  add("--bad-word", flags.bad_words, "never produce this text; may be repeated")
      ->allow_extra_args(false);
}

void AddEndFlags(CLI::App& command, EndFlags& flags, const std::string& max_tokens_default) {
  command.add_option("--max-tokens", flags.max_tokens, "default " + max_tokens_default)
      ->group(kEndGroup);
  command.add_option("--stop", flags.stop, "end before this text; may be repeated")
      ->allow_extra_args(false)
      ->group(kEndGroup);
  command.add_flag("--include-stop", flags.include_stop, "end the text with what --stop found")
      ->group(kEndGroup);
  command
      .add_option("--min-tokens", flags.min_tokens, "do not end before so many tokens; default 0")
      ->group(kEndGroup);
  command.add_option("--stop-token-ids", flags.stop_token_ids, "comma-separated ids")
      ->delimiter(',')
      ->group(kEndGroup);
  command.add_flag("--ignore-eos", flags.ignore_eos, "do not end at the end-of-text token")
      ->group(kEndGroup);
}

absl::StatusOr<std::map<int32_t, float>> ParseBiases(const std::vector<std::string>& entries) {
  std::map<int32_t, float> biases;
  for (const std::string& entry : entries) {
    const size_t equals = entry.find('=');
    int32_t id = 0;
    float bias = 0;
    if (equals == std::string::npos || !absl::SimpleAtoi(entry.substr(0, equals), &id) ||
        !absl::SimpleAtof(entry.substr(equals + 1), &bias)) {
      return InvalidArgument("--logit-bias \"{}\": must be ID=BIAS, such as 15=-100", entry);
    }
    if (!biases.emplace(id, bias).second) {
      return InvalidArgument("--logit-bias names token {} twice: give one bias", id);
    }
  }
  return biases;
}

absl::Status CheckUtf8(std::string_view what, std::string_view text) {
  const size_t valid = ValidUtf8Prefix(text);
  if (valid == text.size()) return absl::OkStatus();
  return InvalidArgument("{} is not UTF-8: byte {} begins no character", what, valid);
}

}  // namespace tandem
