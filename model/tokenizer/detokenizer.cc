#include "model/tokenizer/detokenizer.h"

#include <algorithm>
#include <utility>

namespace tandem {
namespace {

std::vector<std::string> WithoutEmpty(std::vector<std::string> strings) {
  std::erase_if(strings, [](const std::string& text) { return text.empty(); });
  return strings;
}

// The length of the longest suffix of `text` that is a proper prefix of `stop`.
size_t OpenPrefix(std::string_view text, std::string_view stop) {
  for (size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length) {
    if (text.substr(text.size() - length) == stop.substr(0, length)) return length;
  }
  return 0;
}

}  // namespace

Detokenizer::Detokenizer(const Tokenizer& tokenizer, SkipSpecial skip)
    : stream_(tokenizer.StartText(skip)) {}

std::string Detokenizer::Push(int32_t id) { return stream_->Push(id); }

std::string Detokenizer::Flush() { return stream_->Finish(); }

StopStringMatcher::StopStringMatcher(std::vector<std::string> stop_strings)
    : stop_strings_(WithoutEmpty(std::move(stop_strings))) {}

StopStringMatcher::Result StopStringMatcher::Push(std::string_view piece) {
  if (matched_) return {};
  held_.append(piece);
  size_t begin = 0;
  size_t end = std::string::npos;
  const std::string* first = nullptr;
  for (const std::string& stop : stop_strings_) {
    const size_t found = held_.find(stop);
    if (found == std::string::npos) continue;
    const size_t found_end = found + stop.size();
    if (found_end > end || (found_end == end && found > begin)) continue;
    begin = found;
    end = found_end;
    first = &stop;
  }
  Result result;
  if (first != nullptr) {
    matched_ = true;
    result = {held_.substr(0, begin), true, *first};
    held_.clear();
    return result;
  }
  result.text = TakeSettled();
  return result;
}

std::string StopStringMatcher::Pass(std::string_view piece) {
  held_.append(piece);
  return TakeSettled();
}

// Removes from the held text what cannot be the beginning of a stop string, and returns it.
std::string StopStringMatcher::TakeSettled() {
  size_t open = 0;
  for (const std::string& stop : stop_strings_) open = std::max(open, OpenPrefix(held_, stop));
  std::string text = held_.substr(0, held_.size() - open);
  held_.erase(0, text.size());
  return text;
}

std::string StopStringMatcher::Flush() { return std::exchange(held_, {}); }

}  // namespace tandem
