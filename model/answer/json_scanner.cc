#include "model/answer/json_scanner.h"

#include <cctype>
#include <string_view>

#include "base/json.h"
#include "fmt/format.h"
#include "model/answer/mark.h"

namespace tandem {
namespace {

using Result = JsonScanner::Result;

// Longer numbers are refused, so that what is kept of one is bounded.
constexpr size_t kMaxScalarBytes = 512;

}  // namespace

Result JsonScanner::Push(char c) {
  switch (state_) {
    case State::kString:
    case State::kEscape:
    case State::kHex:
      return InString(c);
    case State::kScalar:
      if (!IsSpace(c) && c != ',' && c != ']' && c != '}') {
        scalar_ += c;
        return scalar_.size() > kMaxScalarBytes ? Result::kError : Result::kMore;
      }
      return EndScalar(c);
    default:
      break;
  }
  if (IsSpace(c)) return Result::kMore;
  return InContainer(c);
}

Result JsonScanner::InString(char c) {
  if (state_ == State::kHex) {
    if (std::isxdigit(static_cast<unsigned char>(c)) == 0) return Result::kError;
    if (--hex_left_ == 0) state_ = State::kString;
    return Result::kMore;
  }
  if (state_ == State::kEscape) {
    if (std::string_view("\"\\/bfnrtu").find(c) == std::string_view::npos) return Result::kError;
    state_ = c == 'u' ? State::kHex : State::kString;
    hex_left_ = 4;
    return Result::kMore;
  }
  if (c == '\\') state_ = State::kEscape;
  if (c != '"') return Result::kMore;
  if (!is_key_) return EndValue();
  state_ = State::kColon;
  return Result::kMore;
}

Result JsonScanner::EndScalar(char c) {
  if (!IsJson(scalar_)) return Result::kError;
  scalar_.clear();
  state_ = State::kNext;
  return IsSpace(c) ? Result::kMore : InContainer(c);
}

Result JsonScanner::InContainer(char c) {
  const bool may_end =
      state_ == State::kNext || state_ == State::kValueOrEnd || state_ == State::kKeyOrEnd;
  if (may_end && !open_.empty() && c == (open_.back() == '{' ? '}' : ']')) {
    open_.pop_back();
    return EndValue();
  }
  switch (state_) {
    case State::kNext:
      if (c != ',') return Result::kError;
      state_ = open_.back() == '{' ? State::kKey : State::kValue;
      return Result::kMore;
    case State::kColon:
      if (c != ':') return Result::kError;
      state_ = State::kValue;
      return Result::kMore;
    case State::kKey:
    case State::kKeyOrEnd:
      if (c != '"') return Result::kError;
      is_key_ = true;
      state_ = State::kString;
      return Result::kMore;
    default:
      return Begin(c);
  }
}

Result JsonScanner::Begin(char c) {
  if (c == '"') {
    is_key_ = false;
    state_ = State::kString;
    return Result::kMore;
  }
  if (c == '{' || c == '[') {
    if (open_.size() == kMaxDepth) return Result::kError;
    open_ += c;
    state_ = c == '{' ? State::kKeyOrEnd : State::kValueOrEnd;
    return Result::kMore;
  }
  if (state_ == State::kFirst) return Result::kError;
  scalar_ = c;
  state_ = State::kScalar;
  return Result::kMore;
}

Result JsonScanner::EndValue() {
  state_ = State::kNext;
  return open_.empty() ? Result::kDone : Result::kMore;
}

std::string EscapedControl(char c) {
  if (c == '\n') return "\\n";
  if (c == '\t') return "\\t";
  if (c == '\r') return "\\r";
  return fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
}

}  // namespace tandem
