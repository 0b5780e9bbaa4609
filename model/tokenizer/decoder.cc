#include "model/tokenizer/decoder.h"

#include <cstdint>
#include <utility>

#include "base/status.h"
#include "model/tokenizer/byte_steps.h"
#include "model/tokenizer/matcher.h"
#include "model/tokenizer/metaspace.h"
#include "model/tokenizer/strip_steps.h"
#include "model/tokenizer/unicode.h"

namespace tandem {
namespace {

constexpr int32_t kMaxStripCharacters = 1024;

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
    return MakeByteLevelStep();
  }
  if (type == "ByteFallback") {
    RETURN_IF_ERROR(fields.RefuseOthers({"type"}));
    return MakeByteFallbackStep();
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
  if (fused_) return MakeStripTextStep(std::move(limits));
  return MakeStripTokenStep(std::move(limits));
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
