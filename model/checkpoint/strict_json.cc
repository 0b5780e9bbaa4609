#include "model/checkpoint/strict_json.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/json.h"
#include "base/status.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxDepth = 32;
constexpr size_t kMaxShownBytes = 80;

bool IsWordCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '+' || c == '.';
}

// The word of `text` around byte `position`, at most 32 characters.
std::string WordAt(std::string_view text, size_t position) {
  size_t begin = std::min(position, text.size());
  size_t end = begin;
  while (begin > 0 && end - begin < 16 && IsWordCharacter(text[begin - 1])) --begin;
  while (end < text.size() && end - begin < 32 && IsWordCharacter(text[end])) ++end;
  return std::string(text.substr(begin, end - begin));
}

// Checks the text without building a document, and tracks the path for error messages.
class Checker final : public nlohmann::json_sax<Json> {
 public:
  explicit Checker(std::string_view text) : text_(text) {}

  absl::Status status() const { return status_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }

  bool start_object(size_t) override { return Open(); }
  bool start_array(size_t) override { return Open(); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& name) override {
    Level& level = levels_.back();
    if (!level.keys.insert(name).second) {
      status_ = InvalidArgument("the key {} stands twice in one object", Quoted(name));
      return false;
    }
    level.current = name;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const Json::exception& error) override {
    const std::string word = WordAt(text_, position);
    constexpr int kNumberOutOfRange = 406;
    if (word == "NaN" || word == "Infinity" || word == "-Infinity" ||
        error.id == kNumberOutOfRange) {
      status_ = InvalidArgument("{}: {} is not a finite number", Where(), word);
    } else {
      status_ =
          InvalidArgument("{}: not JSON at byte {}, near {}", Where(), position, Quoted(word));
    }
    return false;
  }

 private:
  struct Level {
    absl::flat_hash_set<std::string> keys;
    std::string current;  // the current key; empty in an array
  };

  bool Open() {
    if (levels_.size() == kMaxDepth) {
      status_ = InvalidArgument("{}: nested deeper than {} levels", Where(), kMaxDepth);
      return false;
    }
    levels_.emplace_back();
    return true;
  }

  bool Close() {
    levels_.pop_back();
    return true;
  }

  std::string Where() const {
    std::string path;
    for (const Level& level : levels_) {
      if (level.current.empty()) continue;
      if (!path.empty()) path += '.';
      path += level.current;
    }
    return path.empty() ? "top level" : "field " + Quoted(path);
  }

  std::string_view text_;
  std::vector<Level> levels_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<nlohmann::json> ParseStrictJson(std::string_view text) {
  Checker checker(text);
  Json::sax_parse(text.begin(), text.end(), &checker);
  RETURN_IF_ERROR(checker.status());
  Json value = ParseJson(text);
  if (value.is_discarded()) return InvalidArgument("not JSON");
  return value;
}

std::string WithoutNonFiniteWords(std::string_view text) {
  constexpr std::array<std::string_view, 2> kWords = {"NaN", "Infinity"};
  std::string out;
  out.reserve(text.size());
  bool in_string = false;
  while (!text.empty()) {
    const auto word = std::find_if(kWords.begin(), kWords.end(), [&](std::string_view candidate) {
      return !in_string && text.substr(0, candidate.size()) == candidate;
    });
    if (word != kWords.end()) {
      out += '0';
      text.remove_prefix(word->size());
      continue;
    }
    const bool escaped = in_string && text.front() == '\\' && text.size() > 1;
    if (text.front() == '"') in_string = !in_string;
    out.append(text.substr(0, escaped ? 2 : 1));
    text.remove_prefix(escaped ? 2 : 1);
  }
  return out;
}

std::string Quoted(std::string_view text) {
  std::string shown = "'";
  for (char c : text.substr(0, kMaxShownBytes)) {
    shown += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  }
  shown += text.size() > kMaxShownBytes ? "...'" : "'";
  return shown;
}

std::string Shown(const nlohmann::json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  if (const auto* text = value.get_ptr<const std::string*>()) return Quoted(*text);
  return JsonText(value);
}

const nlohmann::json* FieldReader::Find(std::string_view name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::string FieldReader::Path(std::string_view name) const { return path_ + std::string(name); }

absl::Status FieldReader::Missing(std::string_view name) const {
  return InvalidArgument("the field {} is missing", Path(name));
}

absl::StatusOr<int32_t> FieldReader::Int(std::string_view name, Range<int32_t> range) const {
  const Json* value = Find(name);
  if (value == nullptr) return Missing(name);
  const auto* number = value->get_ptr<const int64_t*>();
  const bool fits = value->is_number_unsigned()
                        ? *value->get_ptr<const uint64_t*>() <= uint64_t{INT32_MAX}
                        : number != nullptr;
  if (!fits || *number < range.min || *number > range.max) {
    return InvalidArgument("{} is {}: it must be an integer from {} to {}", Path(name),
                           Shown(*value), range.min, range.max);
  }
  return static_cast<int32_t>(*number);
}

absl::StatusOr<int32_t> FieldReader::IntOr(std::string_view name, Range<int32_t> range,
                                           int32_t fallback) const {
  if (!Has(name)) return fallback;
  return Int(name, range);
}

absl::StatusOr<double> FieldReader::Double(std::string_view name, Range<double> range) const {
  const Json* value = Find(name);
  if (value == nullptr) return Missing(name);
  const double number = value->is_number() ? value->get<double>() : range.min - 1;
  if (!(number >= range.min && number <= range.max)) {
    return InvalidArgument("{} is {}: it must be a number from {} to {}", Path(name), Shown(*value),
                           range.min, range.max);
  }
  return number;
}

absl::StatusOr<float> FieldReader::Float(std::string_view name, Range<double> range) const {
  ASSIGN_OR_RETURN(const double number, Double(name, range));
  return static_cast<float>(number);
}

absl::StatusOr<float> FieldReader::FloatOr(std::string_view name, Range<double> range,
                                           float fallback) const {
  if (!Has(name)) return fallback;
  return Float(name, range);
}

absl::StatusOr<bool> FieldReader::BoolOr(std::string_view name, bool fallback) const {
  const Json* value = Find(name);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) {
    return InvalidArgument("{} is {}: it must be true or false", Path(name), Shown(*value));
  }
  return value->get<bool>();
}

absl::StatusOr<std::string> FieldReader::String(std::string_view name) const {
  const Json* value = Find(name);
  if (value == nullptr) return Missing(name);
  const auto* text = value->get_ptr<const std::string*>();
  if (text == nullptr) {
    return InvalidArgument("{} is {}: it must be a string", Path(name), Shown(*value));
  }
  return *text;
}

absl::StatusOr<std::string> FieldReader::StringOr(std::string_view name,
                                                  std::string_view fallback) const {
  if (!Has(name)) return std::string(fallback);
  return String(name);
}

absl::StatusOr<uint64_t> FieldReader::Hash(std::string_view name) const {
  ASSIGN_OR_RETURN(const std::string text, String(name));
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, 16);
  if (error == std::errc() && stop == end && text.size() == 16) return value;
  return InvalidArgument("{} is {}: it must have 16 hexadecimal digits", Path(name), Quoted(text));
}

}  // namespace tandem
