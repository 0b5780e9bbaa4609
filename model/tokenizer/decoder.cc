#include "model/tokenizer/decoder.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/status.h"
#include "base/utf8.h"
#include "model/tokenizer/bpe.h"
#include "model/tokenizer/matcher.h"
#include "model/tokenizer/metaspace.h"
#include "model/tokenizer/unicode.h"

namespace tandem {
namespace {

constexpr int32_t kMaxStripCharacters = 1024;
constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// Tokens written in ByteLevelCharacters become bytes, and bytes become text when their characters
// are complete. A token with another character stands for itself.
class ByteLevelStep : public DecodeStep {
 public:
  void Push(std::string_view token, std::vector<std::string>& out) override {
    const std::optional<std::string> bytes = ByteLevelBytes(token);
    held_.append(bytes.has_value() ? std::string_view(*bytes) : token);
    const size_t held = IncompleteUtf8Suffix(held_);
    const std::string_view complete = std::string_view(held_).substr(0, held_.size() - held);
    if (complete.empty()) return;
    out.push_back(ReplaceInvalidUtf8(complete));
    held_.erase(0, complete.size());
  }
  void Finish(std::vector<std::string>& out) override {
    if (!held_.empty()) out.push_back(ReplaceInvalidUtf8(held_));
    held_.clear();
  }
  std::unique_ptr<DecodeStep> Fresh() const override { return std::make_unique<ByteLevelStep>(); }

 private:
  std::string held_;
};

// Emits a run of <0xNN> tokens as text when the run ends. One ill-formed byte anywhere in the run
// turns every byte of it into U+FFFD, so nothing of it is final earlier.
class ByteFallbackStep : public DecodeStep {
 public:
  void Push(std::string_view token, std::vector<std::string>& out) override {
    if (const std::optional<char> byte = ByteOf(token)) {
      run_.push_back(*byte);
      return;
    }
    Finish(out);
    out.emplace_back(token);
  }
  void Finish(std::vector<std::string>& out) override {
    if (run_.empty()) return;
    if (ValidUtf8Prefix(run_) == run_.size()) {
      out.push_back(run_);
    } else {
      out.insert(out.end(), run_.size(), std::string(kReplacementCharacter));
    }
    run_.clear();
  }
  std::unique_ptr<DecodeStep> Fresh() const override {
    return std::make_unique<ByteFallbackStep>();
  }

 private:
  static std::optional<char> ByteOf(std::string_view token) {
    if (token.size() != 6 || token.substr(0, 3) != "<0x" || token.back() != '>') return {};
    int value = 0;
    for (const char c : token.substr(3, 2)) {
      const auto digit = std::string_view("0123456789abcdef")
                             .find(static_cast<char>(c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c));
      if (digit == std::string_view::npos) return {};
      value = value * 16 + static_cast<int>(digit);
    }
    return static_cast<char>(value);
  }

  std::string run_;
};

class ReplaceStep : public DecodeStep {
 public:
  ReplaceStep(std::shared_ptr<const Matcher> matcher, std::string content)
      : matcher_(std::move(matcher)), content_(std::move(content)) {}

  void Push(std::string_view token, std::vector<std::string>& out) override {
    // A token on which the pattern reaches its match limit is kept unchanged.
    absl::StatusOr<Replaced> replaced = ReplaceMatches(*matcher_, token, content_);
    out.push_back(replaced.ok() ? std::move(replaced->text) : std::string(token));
  }
  void Finish(std::vector<std::string>&) override {}
  std::unique_ptr<DecodeStep> Fresh() const override {
    return std::make_unique<ReplaceStep>(matcher_, content_);
  }

 private:
  const std::shared_ptr<const Matcher> matcher_;
  const std::string content_;
};

// Replaces space marks by spaces. In the first token the marks are removed instead if encoding
// prepends a mark to the text.
class MetaspaceStep : public DecodeStep {
 public:
  enum class First : uint8_t { kDropMarks, kKeepMarks };
  MetaspaceStep(std::string mark, First first) : mark_(std::move(mark)), first_(first) {}

  void Push(std::string_view token, std::vector<std::string>& out) override {
    const bool drop = at_start_ && first_ == First::kDropMarks;
    at_start_ = false;
    std::string text;
    for (size_t at = 0; at < token.size();) {
      const size_t mark = token.find(mark_, at);
      text.append(token.substr(at, mark - at));
      if (mark == std::string_view::npos) break;
      if (!drop) text.push_back(' ');
      at = mark + mark_.size();
    }
    out.push_back(std::move(text));
  }
  void Finish(std::vector<std::string>&) override {}
  std::unique_ptr<DecodeStep> Fresh() const override {
    return std::make_unique<MetaspaceStep>(mark_, first_);
  }

 private:
  const std::string mark_;
  const First first_;
  bool at_start_ = true;
};

// The step for a tokenizer.json without a decoder: a space between every two tokens.
class SpaceBetweenStep : public DecodeStep {
 public:
  void Push(std::string_view token, std::vector<std::string>& out) override {
    if (!std::exchange(at_start_, false)) out.emplace_back(" ");
    out.emplace_back(token);
  }
  void Finish(std::vector<std::string>&) override {}
  std::unique_ptr<DecodeStep> Fresh() const override {
    return std::make_unique<SpaceBetweenStep>();
  }

 private:
  bool at_start_ = true;
};

struct StripLimits {
  std::string content;  // one character
  int32_t start;        // maximum number of characters to strip at the start
  int32_t stop;         // maximum number of characters to strip at the end
};

bool StartsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}
bool EndsWith(std::string_view text, std::string_view suffix) {
  return text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}

// Strips a character from the start and the end of each token.
class StripTokenStep : public DecodeStep {
 public:
  explicit StripTokenStep(StripLimits limits) : limits_(std::move(limits)) {}

  void Push(std::string_view token, std::vector<std::string>& out) override {
    const size_t length = limits_.content.size();
    for (int32_t i = 0; i < limits_.start && StartsWith(token, limits_.content); ++i) {
      token.remove_prefix(length);
    }
    for (int32_t i = 0; i < limits_.stop && EndsWith(token, limits_.content); ++i) {
      token.remove_suffix(length);
    }
    out.emplace_back(token);
  }
  void Finish(std::vector<std::string>&) override {}
  std::unique_ptr<DecodeStep> Fresh() const override {
    return std::make_unique<StripTokenStep>(limits_);
  }

 private:
  const StripLimits limits_;
};

// Strips a character from the start and the end of the text that all tokens form together. Text
// that may be its end is held back.
class StripTextStep : public DecodeStep {
 public:
  explicit StripTextStep(StripLimits limits)
      : limits_(std::move(limits)), left_at_start_(limits_.start) {}

  void Push(std::string_view chunk, std::vector<std::string>& out) override {
    while (left_at_start_ > 0 && StartsWith(chunk, limits_.content)) {
      chunk.remove_prefix(limits_.content.size());
      --left_at_start_;
    }
    if (chunk.empty()) return;
    left_at_start_ = 0;
    std::string text = std::move(held_).append(chunk);
    size_t certain = text.size();
    for (int32_t i = 0; i < limits_.stop; ++i) {
      if (!EndsWith(std::string_view(text).substr(0, certain), limits_.content)) break;
      certain -= limits_.content.size();
    }
    held_ = text.substr(certain);
    text.resize(certain);
    out.push_back(std::move(text));
  }
  void Finish(std::vector<std::string>&) override { held_.clear(); }
  std::unique_ptr<DecodeStep> Fresh() const override {
    return std::make_unique<StripTextStep>(limits_);
  }

 private:
  const StripLimits limits_;
  int32_t left_at_start_;
  std::string held_;
};

absl::StatusOr<std::unique_ptr<DecodeStep>> ParseMetaspace(const JsonFields& fields) {
  using First = MetaspaceStep::First;
  ASSIGN_OR_RETURN(Metaspace metaspace, Metaspace::FromJson(fields));
  const bool keep = metaspace.scheme == Metaspace::PrependScheme::kNever;
  return std::make_unique<MetaspaceStep>(std::move(metaspace.mark),
                                         keep ? First::kKeepMarks : First::kDropMarks);
}

absl::StatusOr<std::unique_ptr<DecodeStep>> ParseReplace(const JsonFields& fields) {
  RETURN_IF_ERROR(fields.RefuseOthers({"type", "pattern", "content"}));
  ASSIGN_OR_RETURN(const JsonFields pattern, fields.Object("pattern"));
  ASSIGN_OR_RETURN(std::shared_ptr<const Matcher> matcher, Matcher::FromJson(pattern));
  ASSIGN_OR_RETURN(std::string content, fields.String("content"));
  return std::make_unique<ReplaceStep>(std::move(matcher), std::move(content));
}

}  // namespace

absl::StatusOr<Decoder> Decoder::FromJson(const nlohmann::json* value, std::string path) {
  Decoder decoder;
  if (value == nullptr) {
    decoder.steps_.push_back(std::make_unique<SpaceBetweenStep>());
    return decoder;
  }
  RETURN_IF_ERROR(decoder.Append(*value, path, 0));
  return decoder;
}

absl::Status Decoder::Append(const nlohmann::json& value, const std::string& path, int depth) {
  RETURN_IF_ERROR(CheckDepth(depth, path));
  ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(value, path));
  ASSIGN_OR_RETURN(const std::string type, fields.String("type"));
  if (type == "Sequence") {
    RETURN_IF_ERROR(fields.RefuseOthers({"type", "decoders"}));
    ASSIGN_OR_RETURN(const nlohmann::json* items, fields.Array("decoders"));
    for (size_t i = 0; i < items->size(); ++i) {
      RETURN_IF_ERROR(Append((*items)[i], fmt::format("{}.decoders[{}]", path, i), depth + 1));
    }
    return absl::OkStatus();
  }
  if (type == "Fuse") {
    fused_ = true;
    return fields.RefuseOthers({"type"});
  }
  if (type == "Strip") {
    ASSIGN_OR_RETURN(std::unique_ptr<DecodeStep> step, ParseStrip(fields));
    steps_.push_back(std::move(step));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(std::unique_ptr<DecodeStep> step, ParseTokenStep(fields, type));
  steps_.push_back(std::move(step));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DecodeStep>> Decoder::ParseTokenStep(const JsonFields& fields,
                                                                    const std::string& type) {
  if (fused_) {
    return Unimplemented("{}: {} after Fuse or ByteLevel is not supported; supported there: Strip",
                         fields.path(), type);
  }
  if (type == "ByteLevel") {
    RETURN_IF_ERROR(fields.RefuseOthers({"type", "add_prefix_space", "trim_offsets", "use_regex"}));
    fused_ = true;
    return std::make_unique<ByteLevelStep>();
  }
  if (type == "ByteFallback") {
    RETURN_IF_ERROR(fields.RefuseOthers({"type"}));
    return std::make_unique<ByteFallbackStep>();
  }
  if (type == "Metaspace") return ParseMetaspace(fields);
  if (type == "Replace") return ParseReplace(fields);
  return Unimplemented(
      "{}: {} is not supported; supported: ByteLevel, ByteFallback, Fuse, Strip, Replace, "
      "Metaspace, Sequence",
      fields.PathOf("type"), type);
}

absl::StatusOr<std::unique_ptr<DecodeStep>> Decoder::ParseStrip(const JsonFields& fields) const {
  RETURN_IF_ERROR(fields.RefuseOthers({"type", "content", "start", "stop"}));
  StripLimits limits;
  ASSIGN_OR_RETURN(limits.content, fields.String("content"));
  if (limits.content.empty() || FirstCharacter(limits.content).length != limits.content.size()) {
    return InvalidArgument("{}: expected one character, found {}", fields.PathOf("content"),
                           limits.content);
  }
  ASSIGN_OR_RETURN(limits.start, fields.Index("start", kMaxStripCharacters));
  ASSIGN_OR_RETURN(limits.stop, fields.Index("stop", kMaxStripCharacters));
  if (fused_) return std::make_unique<StripTextStep>(std::move(limits));
  return std::make_unique<StripTokenStep>(std::move(limits));
}

Decoder::Run Decoder::Start() const {
  Run run;
  for (const auto& step : steps_) run.steps_.push_back(step->Fresh());
  return run;
}

std::string Decoder::Run::Through(std::vector<std::string> texts, size_t first_step) {
  std::vector<std::string> next;
  for (size_t i = first_step; i < steps_.size(); ++i) {
    next.clear();
    for (const std::string& text : texts) steps_[i]->Push(text, next);
    texts.swap(next);
  }
  std::string out;
  for (const std::string& text : texts) out.append(text);
  return out;
}

std::string Decoder::Run::Push(std::string_view token) {
  std::vector<std::string> texts;
  texts.emplace_back(token);
  return Through(std::move(texts), 0);
}

std::string Decoder::Run::Finish() {
  std::string out;
  for (size_t i = 0; i < steps_.size(); ++i) {
    std::vector<std::string> texts;
    steps_[i]->Finish(texts);
    out.append(Through(std::move(texts), i + 1));
  }
  return out;
}

}  // namespace tandem
