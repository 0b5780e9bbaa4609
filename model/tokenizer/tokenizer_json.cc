#include <algorithm>
#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/log.h"
#include "base/status.h"
#include "fmt/ranges.h"
#include "model/tokenizer/json_fields.h"
#include "model/tokenizer/pipeline.h"
#include "model/tokenizer/tokenizer.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxJsonBytes = size_t{256} << 20;
// A file with more unused ids than this is refused, because it cannot be a real vocabulary.
constexpr size_t kMaxUnusedIds = 1 << 16;
constexpr size_t kMaxTokens = 1 << 22;

absl::StatusOr<int32_t> IdLimit(const JsonFields& root, const JsonFields& model) {
  ASSIGN_OR_RETURN(const JsonFields vocabulary, model.Object("vocab"));
  const Json* added = root.Find("added_tokens");
  const size_t count = vocabulary.json().size() + (added == nullptr ? 0 : added->size());
  if (count > kMaxTokens) {
    return Unimplemented("tokenizer.json: {} tokens; at most {} are supported", count, kMaxTokens);
  }
  return static_cast<int32_t>(count + kMaxUnusedIds);
}

absl::Status ParseVocabulary(const JsonFields& vocabulary, int32_t id_limit,
                             Bpe::Vocabulary& result) {
  std::vector<bool> seen(static_cast<size_t>(id_limit));
  result.tokens.reserve(vocabulary.json().size());
  for (const auto& [token, value] : vocabulary.json().items()) {
    const std::optional<int32_t> id = AsIndex(value, id_limit);
    if (!id.has_value()) {
      return InvalidArgument("{}: expected an id in [0, {}), found {}", vocabulary.PathOf(token),
                             id_limit, Excerpt(value));
    }
    if (seen[static_cast<size_t>(*id)]) {
      return InvalidArgument("{}: another token has the id {} too", vocabulary.PathOf(token), *id);
    }
    seen[static_cast<size_t>(*id)] = true;
    result.tokens.emplace_back(token, *id);
  }
  return absl::OkStatus();
}

// Parses a merge, which is written "left right" or ["left", "right"].
absl::StatusOr<std::pair<std::string, std::string>> ParseMerge(const Json& value,
                                                               std::string_view path) {
  if (value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string()) {
    return std::pair(value[0].get<std::string>(), value[1].get<std::string>());
  }
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
      return std::pair(text.substr(0, space), text.substr(space + 1));
    }
  }
  return InvalidArgument("{}: expected \"left right\" or [\"left\", \"right\"], found {}", path,
                         Excerpt(value));
}

absl::Status ParseMerges(const JsonFields& model, Bpe::Vocabulary& result) {
  ASSIGN_OR_RETURN(const Json* merges, model.Array("merges"));
  result.merges.reserve(merges->size());
  for (const Json& merge : *merges) {
    if (merge.is_string() && merge.get_ref<const std::string&>().rfind("#version", 0) == 0)
      continue;
    auto pair = ParseMerge(merge, "");
    if (!pair.ok()) {
      return ParseMerge(merge, fmt::format("{}[{}]", model.PathOf("merges"), result.merges.size()))
          .status();
    }
    result.merges.push_back(*std::move(pair));
  }
  return absl::OkStatus();
}

// Refuses what this build does not support. The type is checked first, because a model of another
// type has fields that a message about the first unknown field would name instead.
absl::Status RefuseUnsupported(const JsonFields& model) {
  ASSIGN_OR_RETURN(const std::string type, model.String("type", "BPE"));
  if (type != "BPE") {
    return Unimplemented("{}: {} is not supported; supported: BPE", model.PathOf("type"), type);
  }
  RETURN_IF_ERROR(model.RefuseOthers({"type", "dropout", "unk_token", "continuing_subword_prefix",
                                      "end_of_word_suffix", "fuse_unk", "byte_fallback",
                                      "ignore_merges", "vocab", "merges"}));
  const Json* dropout = model.Find("dropout");
  if (dropout != nullptr && *dropout != 0) {
    return Unimplemented("{}: {} is not supported; supported: null, 0", model.PathOf("dropout"),
                         Excerpt(*dropout));
  }
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    ASSIGN_OR_RETURN(const std::string affix, model.String(key, ""));
    if (!affix.empty()) {
      return Unimplemented("{}: \"{}\" is not supported; supported: null, \"\"", model.PathOf(key),
                           affix);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<const Bpe>> ParseModel(const JsonFields& model, int32_t id_limit,
                                                      bool byte_level) {
  RETURN_IF_ERROR(RefuseUnsupported(model));
  Bpe::Options options;
  options.byte_level = byte_level;
  ASSIGN_OR_RETURN(options.byte_fallback, model.Bool("byte_fallback", false));
  ASSIGN_OR_RETURN(options.ignore_merges, model.Bool("ignore_merges", false));
  ASSIGN_OR_RETURN(options.fuse_unk, model.Bool("fuse_unk", false));
  if (byte_level && options.byte_fallback) {
    return Unimplemented("{}: true together with ByteLevel", model.PathOf("byte_fallback"));
  }
  if (model.Find("unk_token") != nullptr) {
    ASSIGN_OR_RETURN(options.unk_token, model.String("unk_token"));
  }
  ASSIGN_OR_RETURN(const JsonFields vocabulary, model.Object("vocab"));
  Bpe::Vocabulary tokens;
  RETURN_IF_ERROR(ParseVocabulary(vocabulary, id_limit, tokens));
  RETURN_IF_ERROR(ParseMerges(model, tokens));
  return Bpe::Create(std::move(tokens), std::move(options));
}

// Returns one more than the largest id. An added token either is a token of the model or has an id
// of its own.
absl::StatusOr<int32_t> CheckIds(const AddedTokens& added, const Bpe& model, int32_t id_limit) {
  std::vector<bool> taken(static_cast<size_t>(id_limit));
  for (const auto& [token, id] : model.tokens()) taken[static_cast<size_t>(id)] = true;
  for (const AddedToken& token : added.tokens()) {
    const std::optional<int32_t> in_model = model.Find(token.content);
    const bool agrees =
        in_model.has_value() ? *in_model == token.id : !taken[static_cast<size_t>(token.id)];
    if (!agrees) {
      return InvalidArgument(
          "added_tokens: {} has the id {}, but the vocabulary gives {}", token.content, token.id,
          in_model.has_value() ? fmt::format("it {}", *in_model) : "that to another token");
    }
    taken[static_cast<size_t>(token.id)] = true;
  }
  const auto last = std::find(taken.rbegin(), taken.rend(), true);
  return static_cast<int32_t>(taken.rend() - last);
}

absl::Status RefuseUnsupportedRoot(const JsonFields& root) {
  RETURN_IF_ERROR(
      root.RefuseOthers({"version", "truncation", "padding", "added_tokens", "normalizer",
                         "pre_tokenizer", "post_processor", "decoder", "model"}));
  ASSIGN_OR_RETURN(const std::string version, root.String("version", "1.0"));
  if (version != "1.0") {
    return Unimplemented("version: {} is not supported; supported: 1.0", version);
  }
  return absl::OkStatus();
}

// Logs that the fields truncation and padding are ignored. transformers leaves both in the file
// after any call that padded or truncated. They are about a client's own batches; here a prompt
// that is too long is refused and none is padded.
void LogIgnored(const JsonFields& root) {
  std::vector<std::string_view> ignored;
  for (const std::string_view key : {"truncation", "padding"}) {
    if (root.Find(key) != nullptr) ignored.push_back(key);
  }
  if (ignored.empty()) return;
  LogInfo("tokenizer.json: {} ignored: prompts are neither cut nor filled up here",
          fmt::join(ignored, " and "));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTokenizerJson(std::string_view json) {
  if (json.size() > kMaxJsonBytes) {
    return InvalidArgument("tokenizer.json: {} bytes; at most {} are read", json.size(),
                           kMaxJsonBytes);
  }
  const Json document = ParseJson(json);
  if (document.is_discarded()) return InvalidArgument("tokenizer.json: not a JSON document");
  ASSIGN_OR_RETURN(const JsonFields root, JsonFields::Of(document, ""));
  RETURN_IF_ERROR(RefuseUnsupportedRoot(root));
  LogIgnored(root);
  ASSIGN_OR_RETURN(const JsonFields model, root.Object("model"));
  RETURN_IF_ERROR(RefuseUnsupported(model));
  ASSIGN_OR_RETURN(const int32_t id_limit, IdLimit(root, model));

  TokenizerParts parts;
  ASSIGN_OR_RETURN(parts.normalizer, Normalizer::FromJson(root.Find("normalizer"), "normalizer"));
  ASSIGN_OR_RETURN(parts.added_tokens,
                   AddedTokens::FromJson(root.Find("added_tokens"), id_limit, parts.normalizer));
  ASSIGN_OR_RETURN(parts.pre_tokenizer,
                   PreTokenizer::FromJson(root.Find("pre_tokenizer"), "pre_tokenizer"));
  ASSIGN_OR_RETURN(parts.model, ParseModel(model, id_limit, parts.pre_tokenizer.byte_level()));
  ASSIGN_OR_RETURN(const int32_t vocab_size, CheckIds(parts.added_tokens, *parts.model, id_limit));
  ASSIGN_OR_RETURN(parts.post_processor, PostProcessor::FromJson(root.Find("post_processor"),
                                                                 "post_processor", vocab_size));
  ASSIGN_OR_RETURN(parts.decoder, Decoder::FromJson(root.Find("decoder"), "decoder"));
  return std::make_unique<TokenizerPipeline>(std::move(parts));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& directory) {
  const std::string path = directory + "/tokenizer.json";
  std::ifstream file(path, std::ios::binary);
  if (!file) return NotFound("{}: cannot be opened; a model directory needs one", path);
  std::ostringstream json;
  json << file.rdbuf();
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = ParseTokenizerJson(json.str());
  if (!tokenizer.ok()) return Annotate(tokenizer.status(), path);
  return tokenizer;
}

}  // namespace tandem
