#include "router/request/bad_words.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "base/status.h"

namespace tandem {
namespace {

void Add(const std::vector<int32_t>& ids, BadWords& words) {
  if (!ids.empty()) words.Add()->mutable_ids()->Add(ids.begin(), ids.end());
}

}  // namespace

absl::StatusOr<BadWords> TokenizeBadWords(
    const Tokenizer& tokenizer, const google::protobuf::RepeatedPtrField<std::string>& words) {
  constexpr EncodeOptions kAsInText = {.add_template = Template::kOmit};
  BadWords tokenized;
  for (const std::string& word : words) {
    const std::string bare(absl::StripLeadingAsciiWhitespace(word));
    ASSIGN_OR_RETURN(const std::vector<int32_t> first, tokenizer.Encode(bare, kAsInText));
    ASSIGN_OR_RETURN(const std::vector<int32_t> later, tokenizer.Encode(" " + bare, kAsInText));
    Add(first, tokenized);
    const bool differs = !first.empty() && later.size() == first.size() && later[0] != first[0];
    if (differs) Add(later, tokenized);
  }
  return tokenized;
}

}  // namespace tandem
