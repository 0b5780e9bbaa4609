#include "model/tokenizer/normalizer.h"

#include <optional>
#include <utility>

#include "base/status.h"
#include "model/tokenizer/overload.h"

namespace tandem {
namespace {

constexpr size_t kMaxPrependBytes = 1024;

std::optional<NormalForm> NormalFormOf(std::string_view type) {
  if (type == "NFC") return NormalForm::kNfc;
  if (type == "NFD") return NormalForm::kNfd;
  if (type == "NFKC") return NormalForm::kNfkc;
  if (type == "NFKD") return NormalForm::kNfkd;
  return std::nullopt;
}

}  // namespace

absl::StatusOr<Normalizer> Normalizer::FromJson(const nlohmann::json* value, std::string path) {
  Normalizer normalizer;
  if (value != nullptr) RETURN_IF_ERROR(normalizer.Append(*value, path, 0));
  return normalizer;
}

absl::Status Normalizer::Append(const nlohmann::json& value, const std::string& path, int depth) {
  RETURN_IF_ERROR(CheckDepth(depth, path));
  ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(value, path));
  ASSIGN_OR_RETURN(const std::string type, fields.String("type"));
  if (type != "Sequence") {
    ASSIGN_OR_RETURN(Step step, ParseStep(fields, type));
    steps_.push_back(std::move(step));
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(fields.RefuseOthers({"type", "normalizers"}));
  ASSIGN_OR_RETURN(const nlohmann::json* items, fields.Array("normalizers"));
  for (size_t i = 0; i < items->size(); ++i) {
    RETURN_IF_ERROR(Append((*items)[i], fmt::format("{}.normalizers[{}]", path, i), depth + 1));
  }
  return absl::OkStatus();
}

absl::StatusOr<Normalizer::Step> Normalizer::ParseStep(const JsonFields& fields,
                                                       const std::string& type) {
  if (const std::optional<NormalForm> form = NormalFormOf(type)) {
    RETURN_IF_ERROR(fields.RefuseOthers({"type"}));
    return *form;
  }
  if (type == "Lowercase") {
    RETURN_IF_ERROR(fields.RefuseOthers({"type"}));
    return Lowercase{};
  }
  if (type == "Prepend") {
    RETURN_IF_ERROR(fields.RefuseOthers({"type", "prepend"}));
    ASSIGN_OR_RETURN(std::string text, fields.String("prepend"));
    if (text.size() > kMaxPrependBytes) {
      return Unimplemented("{}: longer than {} bytes", fields.PathOf("prepend"), kMaxPrependBytes);
    }
    return Prepend{std::move(text)};
  }
  if (type == "Replace") {
    RETURN_IF_ERROR(fields.RefuseOthers({"type", "pattern", "content"}));
    ASSIGN_OR_RETURN(const JsonFields pattern, fields.Object("pattern"));
    ASSIGN_OR_RETURN(std::shared_ptr<const Matcher> matcher, Matcher::FromJson(pattern));
    ASSIGN_OR_RETURN(std::string content, fields.String("content"));
    return Replace{std::move(matcher), std::move(content)};
  }
  if (type == "Strip") {
    RETURN_IF_ERROR(fields.RefuseOthers({"type", "strip_left", "strip_right"}));
    ASSIGN_OR_RETURN(const bool left, fields.Bool("strip_left", true));
    ASSIGN_OR_RETURN(const bool right, fields.Bool("strip_right", true));
    return Strip{left, right};
  }
  return Unimplemented(
      "{}: {} is not supported; supported: NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, "
      "Strip, Sequence",
      fields.PathOf("type"), type);
}

absl::Status Normalizer::ApplyStep(const Step& step, Result& result) {
  std::string& text = result.text;
  const auto assign = [&text](absl::StatusOr<std::string> changed) -> absl::Status {
    ASSIGN_OR_RETURN(text, std::move(changed));
    return absl::OkStatus();
  };
  return std::visit(
      Overload{
          [&](NormalForm form) { return assign(ToNormalForm(text, form)); },
          [&](const Lowercase&) { return assign(ToLower(text)); },
          [&](const Prepend& prepend) {
            if (!text.empty()) text.insert(0, prepend.text);
            return absl::OkStatus();
          },
          [&](const Replace& replace) -> absl::Status {
            ASSIGN_OR_RETURN(Replaced replaced,
                             ReplaceMatches(*replace.matcher, text, replace.content));
            text = std::move(replaced.text);
            result.lost_start = result.lost_start || replaced.lost_start;
            return absl::OkStatus();
          },
          [&](const Strip& strip) {
            std::string_view rest = text;
            while (strip.left && !rest.empty() && IsWhitespace(FirstCharacter(rest).code_point)) {
              rest.remove_prefix(FirstCharacter(rest).length);
              result.lost_start = true;
            }
            while (strip.right && !rest.empty() && IsWhitespace(LastCharacter(rest).code_point)) {
              rest.remove_suffix(LastCharacter(rest).length);
            }
            text = std::string(rest);
            return absl::OkStatus();
          },
      },
      step);
}

std::optional<size_t> Normalizer::MaxShrink() const {
  // How many times shorter a normal form may be: a composed character has at least two bytes and
  // replaces at most four characters of four bytes.
  constexpr size_t kOfNormalForm = 8;
  // How many times shorter lower case may be: a character has at most four bytes, and becomes at
  // least one.
  constexpr size_t kOfLowercase = 4;
  size_t shrink = 1;
  for (const Step& step : steps_) {
    if (std::holds_alternative<Strip>(step)) return std::nullopt;
    if (std::holds_alternative<NormalForm>(step)) shrink *= kOfNormalForm;
    if (std::holds_alternative<Lowercase>(step)) shrink *= kOfLowercase;
    const Replace* const replace = std::get_if<Replace>(&step);
    if (replace == nullptr) continue;
    const std::optional<size_t> replaced = replace->matcher->MatchBytes();
    if (!replaced || replace->content.empty()) return std::nullopt;
    shrink *= (*replaced + replace->content.size() - 1) / replace->content.size();
  }
  return shrink;
}

// Where the ranges that came from a request are in the text after a step.
absl::StatusOr<std::vector<ByteRange>> Normalizer::MapInput(const Step& step, const Result& before,
                                                            const Result& after) {
  std::vector<ByteRange> mapped;
  if (std::holds_alternative<Prepend>(step)) {
    const size_t shift = after.text.size() - before.text.size();
    for (const ByteRange& range : before.input) {
      mapped.push_back({range.begin + shift, range.end + shift});
    }
    return mapped;
  }
  if (std::holds_alternative<Strip>(step)) {
    const size_t kept = before.text.find(after.text);
    return Within(before.input, kept, kept + after.text.size());
  }
  std::string joined;
  size_t at = 0;
  const auto append = [&](size_t end) -> absl::Status {
    Result part{before.text.substr(at, end - at)};
    if (!part.text.empty()) RETURN_IF_ERROR(ApplyStep(step, part));
    joined += part.text;
    at = end;
    return absl::OkStatus();
  };
  for (const ByteRange& range : before.input) {
    RETURN_IF_ERROR(append(range.begin));
    const size_t begin = joined.size();
    RETURN_IF_ERROR(append(range.end));
    if (begin < joined.size()) mapped.push_back({begin, joined.size()});
  }
  RETURN_IF_ERROR(append(before.text.size()));
  if (joined != after.text) mapped = {{0, after.text.size()}};
  return mapped;
}

absl::StatusOr<Normalizer::Result> Normalizer::Apply(std::string_view text,
                                                     std::span<const ByteRange> input) const {
  Result result{std::string(text), false, {input.begin(), input.end()}};
  for (const Step& step : steps_) {
    if (result.input.empty()) {
      RETURN_IF_ERROR(ApplyStep(step, result));
      continue;
    }
    const Result before = result;
    RETURN_IF_ERROR(ApplyStep(step, result));
    ASSIGN_OR_RETURN(result.input, MapInput(step, before, result));
  }
  return result;
}

}  // namespace tandem
