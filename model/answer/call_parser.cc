#include "model/answer/call_parser.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "model/answer/mark.h"
#include "nlohmann/json.hpp"

namespace tandem {
namespace {

using Scan = JsonScanner::Result;

constexpr size_t kMaxNameBytes = 256;  // the most bytes of a tool's name
constexpr size_t kMaxMarkedName =
    512;  // of a name of a tool or a parameter, with the mark after it

// The JSON form of a scalar. Models also write True, False and None, as Python does.
std::string_view ScalarOf(std::string_view text) {
  if (text == "True") return "true";
  if (text == "False") return "false";
  if (text == "None") return "null";
  return text;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

CallParser::CallParser(const CallMarkup& markup, const StringParameters& strings)
    : markup_(markup),
      strings_(strings),
      step_(markup.form == CallMarkup::Form::kJson ? Step::kBrace : Step::kName) {}

CallParser::Result CallParser::Read(std::string_view text, size_t& at) {
  while (step_ != Step::kDone && step_ != Step::kFailed) {
    if (!Advance(text, at)) break;
  }
  if (step_ == Step::kDone) return Result::kDone;
  return step_ == Step::kFailed ? Result::kFailed : Result::kMore;
}

std::string CallParser::TakeArguments() { return std::exchange(arguments_, std::string()); }

bool CallParser::Advance(std::string_view text, size_t& at) {
  if (step_ == Step::kName) return ReadName(text, at);
  if (step_ == Step::kPair) return ReadPair(text, at);
  const bool inside =
      step_ == Step::kFieldText || step_ == Step::kText || step_ == Step::kArguments;
  if (!inside && step_ != Step::kScalar) at = SkipSpace(text, at);
  if (at == text.size()) return false;
  const char c = text[at];
  switch (step_) {
    case Step::kScalar:
      ReadScalar(text, at);
      return true;
    case Step::kFieldText:
    case Step::kText:
      ReadString(c);
      break;
    case Step::kArguments:
      ReadArguments(c);
      break;
    case Step::kValue:
      BeginValue(c);
      break;
    default:
      ReadSymbol(c);
      break;
  }
  // The character that makes a call fail is no part of the call.
  if (step_ != Step::kFailed) ++at;
  return true;
}

void CallParser::ReadSymbol(char c) {
  switch (step_) {
    case Step::kBrace:
      step_ = c == '{' ? Step::kField : Step::kFailed;
      return;
    case Step::kField:
      if (c != '"') return Fail();
      scanner_ = JsonScanner();
      scanner_.Push(c);
      token_ = c;
      step_ = Step::kFieldText;
      return;
    case Step::kColon:
      step_ = c == ':' ? Step::kValue : Step::kFailed;
      return;
    case Step::kNext:
      if (c == ',') {
        step_ = Step::kField;
        return;
      }
      if (c != '}' || name_.empty()) return Fail();
      // An object without marks around it is a call only if it has a name and arguments; otherwise
      // it is an answer in JSON.
      if (!has_arguments_) {
        if (markup_.call_open.empty() && markup_.section_open.empty()) return Fail();
        arguments_ = "{}";
        has_arguments_ = true;
      }
      step_ = Step::kDone;
      return;
    case Step::kObject:
      if (c != '{') return Fail();
      has_arguments_ = true;
      scanner_ = JsonScanner();
      step_ = Step::kArguments;
      return ReadArguments(c);
    default:
      return Fail();
  }
}

void CallParser::ReadString(char c) {
  const Scan result = scanner_.Push(c);
  if (result == Scan::kError) return Fail();
  token_ += scanner_.NeedsEscape(c) ? EscapedControl(c) : std::string(1, c);
  if (result == Scan::kMore) return;
  if (step_ == Step::kFieldText) return EndField();
  EndString();
}

void CallParser::EndField() {
  const nlohmann::json field = ParseJson(token_);
  step_ = Step::kColon;
  if (field == "name" || field == "tool_name") {
    field_ = Field::kName;
  } else if (field == "arguments" || field == "parameters") {
    field_ = Field::kArguments;
  } else if (field == "id" || field == "tool_call_id" || field == "type" || field == "index") {
    field_ = Field::kOther;
  } else {
    Fail();
  }
}

void CallParser::BeginValue(char c) {
  const bool is_again =
      (field_ == Field::kName && !name_.empty()) || (field_ == Field::kArguments && has_arguments_);
  if (is_again) return Fail();
  scanner_ = JsonScanner();
  if (c == '"') {
    scanner_.Push(c);
    token_ = c;
    step_ = Step::kText;
    return;
  }
  if (c == '{' && field_ == Field::kArguments) {
    has_arguments_ = true;
    step_ = Step::kArguments;
    return ReadArguments(c);
  }
  if (c == '{' || c == '[' || field_ == Field::kName) return Fail();
  token_ = c;
  step_ = Step::kScalar;
}

void CallParser::EndString() {
  step_ = Step::kNext;
  const nlohmann::json value = ParseJson(token_);
  if (!value.is_string()) return Fail();
  const std::string& text = value.get_ref<const std::string&>();
  if (field_ == Field::kName && !SetName(text)) return Fail();
  if (field_ != Field::kArguments) return;
  // Arguments may come as JSON in a string, as OpenAI's API itself has them. The scanner bounds
  // their depth, which the parser does not.
  JsonScanner scanner;
  Scan result = Scan::kMore;
  const std::string_view object = Trimmed(text);
  size_t read = 0;
  while (read < object.size() && result == Scan::kMore) result = scanner.Push(object[read++]);
  if (object.empty() || object[0] != '{' || result != Scan::kDone || read < object.size() ||
      !IsJson(object)) {
    return Fail();
  }
  arguments_ = object;
  has_arguments_ = true;
}

void CallParser::ReadScalar(std::string_view text, size_t& at) {
  while (at < text.size() && text[at] != ',' && text[at] != '}' && !IsSpace(text[at])) {
    if (token_.size() >= kMaxNameBytes) return Fail();
    token_ += text[at++];
  }
  if (at == text.size()) return;
  step_ = Step::kNext;
  if (!IsJson(token_)) return Fail();
  if (field_ != Field::kArguments) return;
  if (token_ != "null") return Fail();
  arguments_ = "{}";
  has_arguments_ = true;
}

void CallParser::ReadArguments(char c) {
  const Scan result = scanner_.Push(c);
  if (result == Scan::kError) return Fail();
  if (scanner_.NeedsEscape(c)) {
    arguments_ += EscapedControl(c);
  } else {
    arguments_ += c;
  }
  if (result == Scan::kMore) return;
  step_ = markup_.form == CallMarkup::Form::kJson ? Step::kNext : Step::kDone;
}

bool CallParser::ReadName(std::string_view text, size_t& at) {
  const size_t begin = SkipSpace(text, at);
  const std::string_view rest = text.substr(begin, kMaxMarkedName);
  FoundMark close;
  if (markup_.name_close.empty()) {
    close.begin = std::min(rest.find_first_of(" \t\r\n{<"), rest.size());
    close.end = close.begin;
    close.match = close.begin < rest.size() ? Match::kYes : Match::kMore;
  } else {
    close = FindMark(rest, markup_.name_close);
  }
  if (close.match != Match::kYes && rest.size() < kMaxMarkedName) return false;
  if (close.match != Match::kYes || !SetName(Trimmed(rest.substr(0, close.begin)))) {
    Fail();
    return true;
  }
  at = begin + close.end;
  step_ = markup_.form == CallMarkup::Form::kNamed ? Step::kObject : Step::kPair;
  has_arguments_ = step_ == Step::kPair;
  return true;
}

bool CallParser::SetName(std::string_view name) {
  if (name.size() > kMaxNameBytes) return false;
  const bool is_name = !name.empty() && std::none_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) <= ' ' ||
           std::string_view("{}[]<>\"'`,").find(c) != std::string_view::npos;
  });
  if (!is_name) return false;
  size_t digits = name.size();
  while (digits > 0 && IsDigit(name[digits - 1])) --digits;
  if (digits > 1 && digits < name.size() && name[digits - 1] == ':') {
    number_ = name.substr(digits);
    name = name.substr(0, digits - 1);
  }
  name_ = name;
  return true;
}

bool CallParser::ReadPair(std::string_view text, size_t& at) {
  size_t key_begin = at;
  const Match open = MatchMark(text, key_begin, markup_.key_open);
  if (open == Match::kMore) return false;
  if (open == Match::kNo) {
    arguments_ += num_pairs_ == 0 ? "{}" : "}";
    step_ = Step::kDone;
    return true;
  }
  const std::string_view after = text.substr(key_begin);
  const FoundMark key = FindMark(after.substr(0, kMaxMarkedName), markup_.key_close);
  if (key.match != Match::kYes) {
    if (after.size() < kMaxMarkedName) return false;
    Fail();
    return true;
  }
  const std::string_view values = after.substr(key.end);
  const size_t from = std::min(searched_, values.size());
  const FoundMark value = FindMark(values.substr(from), markup_.value_close);
  searched_ = from + value.begin;
  if (value.match != Match::kYes) return false;
  AddPair(std::string(Trimmed(after.substr(0, key.begin))), values.substr(0, from + value.begin));
  at = key_begin + key.end + from + value.end;
  searched_ = 0;
  return true;
}

void CallParser::AddPair(const std::string& key, std::string_view value) {
  if (value.starts_with('\n')) value.remove_prefix(1);
  if (value.ends_with('\n')) value.remove_suffix(1);
  arguments_ += num_pairs_++ == 0 ? "{" : ", ";
  arguments_ += JsonString(key) + ": ";
  const std::string_view scalar = ScalarOf(Trimmed(value));
  const bool is_text = strings_.contains(std::make_pair(name_, key)) || !IsJson(scalar);
  arguments_ += is_text ? JsonString(value) : std::string(scalar);
}

}  // namespace tandem
