#include "model/chat/chat_json.h"

#include <utility>
#include <vector>

#include "base/status.h"
#include "model/chat/jinja/value.h"

namespace tandem {
namespace {

constexpr size_t kMaxNesting = jinja::kMaxValueDepth;

absl::Status TooDeep() {
  return InvalidArgument("the JSON is nested more than {} deep", kMaxNesting);
}

}  // namespace

absl::StatusOr<ChatJson> ParseChatJson(std::string_view text) {
  ParsedJson parsed = ParseOrderedJson(text, {.depth = kMaxNesting});
  if (!parsed.fault) return std::move(parsed.value);
  if (parsed.fault->kind == JsonFault::Kind::kTooDeep) return TooDeep();
  return ChatJson(ChatJson::value_t::discarded);
}

absl::Status CheckNesting(const ChatJson& json) {
  struct Level {
    ChatJson::const_iterator next;
    ChatJson::const_iterator end;
  };
  std::vector<Level> levels;
  if (json.is_structured()) levels.push_back({json.begin(), json.end()});
  while (!levels.empty()) {
    Level& level = levels.back();
    if (level.next == level.end) {
      levels.pop_back();
      continue;
    }
    const ChatJson& item = *level.next++;
    if (!item.is_structured()) continue;
    if (levels.size() == kMaxNesting) return TooDeep();
    levels.push_back({item.begin(), item.end()});
  }
  return absl::OkStatus();
}

}  // namespace tandem
