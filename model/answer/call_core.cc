#include "model/answer/call_core.h"

#include <cctype>
#include <string>

#include "base/json.h"
#include "model/answer/json_scanner.h"
#include "model/answer/mark.h"
#include "model/answer/probe.h"

namespace tandem {
namespace {

using Form = CallMarkup::Form;

// The end of the JSON object at `begin`; kNoOffset where there is none.
size_t ObjectEnd(std::string_view text, size_t begin) {
  JsonScanner scanner;
  for (size_t at = begin; at < text.size(); ++at) {
    const JsonScanner::Result result = scanner.Push(text[at]);
    if (result == JsonScanner::Result::kError) return kNoOffset;
    if (result == JsonScanner::Result::kDone) return at + 1;
  }
  return kNoOffset;
}

std::optional<CallCore> JsonCore(std::string_view text, size_t from, size_t name) {
  for (size_t begin = text.find('{', from); begin < name; begin = text.find('{', begin + 1)) {
    const size_t end = ObjectEnd(text, begin);
    if (end == kNoOffset || end < name) continue;
    const nlohmann::json object = ParseJson(text.substr(begin, end - begin));
    if (!object.is_object() || (!object.contains("name") && !object.contains("tool_name")))
      continue;
    return CallCore{begin, end, {.form = Form::kJson}};
  }
  return std::nullopt;
}

// Drops a number at the front, as in ":0". A template may print a call's id, which is the name with
// a number behind it, in place of the name.
std::string_view WithoutNumber(std::string_view text) {
  if (text.size() < 2 || text[0] != ':') return text;
  size_t at = 1;
  while (at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0) ++at;
  return at > 1 ? text.substr(at) : text;
}

std::optional<CallCore> NamedCore(std::string_view text, size_t name, size_t name_end) {
  const size_t begin = text.find('{', name_end);
  const size_t end = begin == kNoOffset ? kNoOffset : ObjectEnd(text, begin);
  if (end == kNoOffset || text.find(probe::kKeys[0], name_end) < begin) return std::nullopt;
  const std::string_view close = WithoutNumber(text.substr(name_end, begin - name_end));
  return CallCore{name, end, {.form = Form::kNamed, .name_close = MarkOf(close)}};
}

std::optional<CallCore> TaggedCore(std::string_view text, size_t name, size_t name_end) {
  size_t key[2];
  size_t value[2];
  size_t at = name_end;
  for (int i = 0; i < 2; ++i) {
    key[i] = text.find(probe::kKeys[i], at);
    if (key[i] == kNoOffset) return std::nullopt;
    value[i] = text.find(probe::kValues[i], key[i]);
    if (value[i] == kNoOffset || text[value[i] - 1] == '"') return std::nullopt;
    at = value[i] + probe::kValues[i].size();
  }
  const std::string_view before = text.substr(name_end, key[0] - name_end);
  const size_t key_end = key[0] + probe::kKeys[0].size();
  const size_t value_end = value[0] + probe::kValues[0].size();
  const std::string_view between = text.substr(value_end, key[1] - value_end);
  const std::string_view key_close = text.substr(key_end, value[0] - key_end);
  if (!text.substr(key[1] + probe::kKeys[1].size())
           .starts_with(std::string(key_close) + std::string(probe::kValues[1]))) {
    return std::nullopt;
  }
  // Between two pairs of key and value is the end of one and the beginning of the other.
  for (size_t split = 1; split < between.size(); ++split) {
    if (!OpensTag(between[split])) continue;
    const std::string_view close = Trimmed(between.substr(0, split));
    const std::string_view open = Trimmed(between.substr(split));
    size_t end = at;
    if (close.empty() || MatchMark(text, end, close) != Match::kYes) continue;
    if (!Trimmed(before).ends_with(open)) continue;
    const std::string_view name_close = before.substr(0, before.rfind(open));
    return CallCore{name,
                    end,
                    {.form = Form::kTagged,
                     .name_close = MarkOf(WithoutNumber(name_close)),
                     .key_open = MarkOf(open),
                     .key_close = MarkOf(key_close),
                     .value_close = MarkOf(close)}};
  }
  return std::nullopt;
}

}  // namespace

std::optional<CallCore> FindCallCore(std::string_view text, size_t from, std::string_view name) {
  const size_t at = text.find(name, from);
  if (at == kNoOffset) return std::nullopt;
  std::optional<CallCore> core = JsonCore(text, from, at);
  if (!core) core = NamedCore(text, at, at + name.size());
  if (!core) core = TaggedCore(text, at, at + name.size());
  return core;
}

}  // namespace tandem
