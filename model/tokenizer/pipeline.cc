#include "model/tokenizer/pipeline.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/status.h"
#include "base/utf8.h"

namespace tandem {

// The state of one Encode call.
struct TokenizerPipeline::Encoding {
  SpecialTokens special_tokens;
  TextArena arena;
  std::vector<Piece> words;
  Bpe::Scratch scratch;
  std::vector<int32_t> ids;
};

class TokenizerPipeline::Stream : public TextStream {
 public:
  Stream(const TokenizerPipeline& tokenizer, SkipSpecial skip)
      : tokenizer_(tokenizer), skip_(skip), run_(tokenizer.parts_.decoder.Start()) {}

  std::string Push(int32_t id) override {
    if (id < 0 || id >= tokenizer_.vocab_size()) return "";
    const Entry& entry = tokenizer_.entries_[static_cast<size_t>(id)];
    if (entry.token == nullptr || (entry.special && skip_ == SkipSpecial::kYes)) return "";
    return run_.Push(*entry.token);
  }
  std::string Finish() override { return run_.Finish(); }

 private:
  const TokenizerPipeline& tokenizer_;
  const SkipSpecial skip_;
  Decoder::Run run_;
};

TokenizerPipeline::TokenizerPipeline(TokenizerParts parts) : parts_(std::move(parts)) {
  const auto entry_of = [this](int32_t id) -> Entry& {
    const auto index = static_cast<size_t>(id);
    if (entries_.size() <= index) entries_.resize(index + 1);
    return entries_[index];
  };
  for (const auto& [token, id] : parts_.model->tokens()) entry_of(id).token = &token;
  for (const AddedToken& added : parts_.added_tokens.tokens()) {
    Entry& entry = entry_of(added.id);
    entry.token = &added.text;
    entry.special = entry.special || added.special;
    added_ids_.emplace(added.content, added.id);
  }
}

absl::StatusOr<std::vector<int32_t>> TokenizerPipeline::Encode(std::string_view text,
                                                               const EncodeOptions& options) const {
  if (ValidUtf8Prefix(text) == text.size()) return EncodeText(text, {}, options);
  return EncodeText(ReplaceInvalidUtf8(text), {}, options);
}

absl::StatusOr<std::vector<int32_t>> TokenizerPipeline::EncodeParts(
    std::span<const TextPart> parts, const EncodeOptions& options) const {
  std::string text;
  std::vector<ByteRange> input;
  for (const TextPart& part : parts) {
    const size_t begin = text.size();
    const bool valid = ValidUtf8Prefix(part.text) == part.text.size();
    text += valid ? part.text : ReplaceInvalidUtf8(part.text);
    if (part.from_input && begin < text.size()) input.push_back({begin, text.size()});
  }
  return EncodeText(text, input, options);
}

absl::StatusOr<std::vector<int32_t>> TokenizerPipeline::EncodeText(
    std::string_view text, std::span<const ByteRange> input, const EncodeOptions& options) const {
  Encoding encoding{options.special_tokens};
  const bool add = options.add_template == Template::kAdd;
  if (add) encoding.ids = parts_.post_processor.before;
  RETURN_IF_ERROR(EncodeGiven({text, true}, input, encoding));
  if (add) {
    const std::vector<int32_t>& after = parts_.post_processor.after;
    encoding.ids.insert(encoding.ids.end(), after.begin(), after.end());
  }
  return std::move(encoding.ids);
}

absl::Status TokenizerPipeline::EncodeGiven(Piece piece, std::span<const ByteRange> input,
                                            Encoding& encoding) const {
  for (const AddedTokenPart& part : parts_.added_tokens.Find(
           piece.text, AddedTokens::Stage::kAsGiven, encoding.special_tokens, input)) {
    if (part.id.has_value()) {
      encoding.ids.push_back(*part.id);
      continue;
    }
    Piece rest = {piece.text.substr(part.begin, part.end - part.begin), part.begin == 0};
    std::vector<ByteRange> rest_input = Within(input, part.begin, part.end);
    if (!parts_.normalizer.empty()) {
      ASSIGN_OR_RETURN(Normalizer::Result normalized,
                       parts_.normalizer.Apply(rest.text, rest_input));
      rest_input = std::move(normalized.input);
      rest = {encoding.arena.Keep(std::move(normalized.text)),
              rest.at_start && !normalized.lost_start};
    }
    RETURN_IF_ERROR(EncodeNormalized(rest, rest_input, encoding));
  }
  return absl::OkStatus();
}

absl::Status TokenizerPipeline::EncodeNormalized(Piece piece, std::span<const ByteRange> input,
                                                 Encoding& encoding) const {
  for (const AddedTokenPart& part : parts_.added_tokens.Find(
           piece.text, AddedTokens::Stage::kNormalized, encoding.special_tokens, input)) {
    if (part.id.has_value()) {
      encoding.ids.push_back(*part.id);
      continue;
    }
    encoding.words.clear();
    RETURN_IF_ERROR(parts_.pre_tokenizer.Run(
        {piece.text.substr(part.begin, part.end - part.begin), piece.at_start && part.begin == 0},
        encoding.arena, encoding.words));
    for (const Piece& word : encoding.words) {
      parts_.model->Encode(word.text, encoding.scratch, encoding.ids);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> TokenizerPipeline::Decode(const std::vector<int32_t>& ids,
                                                      SkipSpecial skip) const {
  Stream stream(*this, skip);
  std::string text;
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size()) {
      return InvalidArgument("token id {} is outside the vocabulary of {}", id, vocab_size());
    }
    text += stream.Push(id);
  }
  text += stream.Finish();
  return text;
}

std::unique_ptr<TextStream> TokenizerPipeline::StartText(SkipSpecial skip) const {
  return std::make_unique<Stream>(*this, skip);
}

bool TokenizerPipeline::IsSpecial(int32_t id) const {
  return id >= 0 && id < vocab_size() && entries_[static_cast<size_t>(id)].special;
}

std::optional<size_t> TokenizerPipeline::MaxBytesPerToken() const {
  const std::optional<size_t> shrink = parts_.normalizer.MaxShrink();
  if (!shrink || parts_.pre_tokenizer.DropsText() || !parts_.model->CoversAllText()) {
    return std::nullopt;
  }
  size_t longest = 1;
  for (const auto& [token, id] : parts_.model->tokens()) longest = std::max(longest, token.size());
  for (const AddedToken& added : parts_.added_tokens.tokens()) {
    if (added.lstrip || added.rstrip) return std::nullopt;  // takes any amount of white space along
    longest = std::max(longest, added.text.size());
  }
  return longest * *shrink;
}

std::optional<int32_t> TokenizerPipeline::TokenId(std::string_view token) const {
  const auto added = added_ids_.find(absl::string_view(token.data(), token.size()));
  if (added != added_ids_.end()) return added->second;
  return parts_.model->Find(token);
}

std::string_view TokenizerPipeline::Spelling(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  const std::string* token = entries_[static_cast<size_t>(id)].token;
  return token == nullptr ? std::string_view() : std::string_view(*token);
}

}  // namespace tandem
