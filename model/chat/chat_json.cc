#include "model/chat/chat_json.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "model/chat/jinja/value.h"

namespace tandem {
namespace {

constexpr size_t kMaxNesting = jinja::kMaxValueDepth;

absl::Status TooDeep() {
  return InvalidArgument("the JSON is nested more than {} deep", kMaxNesting);
}

// Builds the document. nlohmann's own builder looks through all fields of an object for each that
// it adds. Every handler returns whether parsing goes on.
class Builder final : public nlohmann::json_sax<ChatJson> {
 public:
  absl::StatusOr<ChatJson> Take(bool parsed) {
    if (too_deep_) return TooDeep();
    return parsed ? std::move(root_) : ChatJson(ChatJson::value_t::discarded);
  }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(int64_t value) override { return Add(value); }
  bool number_unsigned(uint64_t value) override { return Add(value); }
  bool number_float(double value, const std::string&) override { return Add(value); }
  bool string(std::string& value) override { return Add(std::move(value)); }
  bool binary(ChatJson::binary_t&) override { return false; }
  bool start_object(size_t) override { return Open(ChatJson::object()); }
  bool start_array(size_t) override { return Open(ChatJson::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(std::string& name) override {
    levels_.back().name = std::move(name);
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  // An array or object that is not complete yet.
  struct Level {
    ChatJson* value;
    std::string name;                                // of the object's next field
    absl::flat_hash_map<std::string, size_t> names;  // of its fields
  };

  // Elements stay where they are while they are open: nothing is added beside an open one.
  ChatJson* Place(ChatJson value) {
    if (levels_.empty()) return &(root_ = std::move(value));
    Level& level = levels_.back();
    if (level.value->is_array()) {
      level.value->push_back(std::move(value));
      return &level.value->back();
    }
    auto& fields = level.value->get_ref<ChatJson::object_t&>();
    const auto [at, added] = level.names.try_emplace(level.name, fields.size());
    if (!added) {
      ChatJson& known = (fields.begin() + static_cast<int64_t>(at->second))->second;
      return &(known = std::move(value));
    }
    fields.emplace_back(std::move(level.name), std::move(value));
    return &fields.back().second;
  }

  bool Add(ChatJson value) {
    Place(std::move(value));
    return true;
  }

  bool Open(ChatJson value) {
    if (levels_.size() == kMaxNesting) {
      too_deep_ = true;
      return false;
    }
    levels_.push_back({.value = Place(std::move(value)), .name = {}, .names = {}});
    return true;
  }

  bool Close() {
    levels_.pop_back();
    return true;
  }

  ChatJson root_;
  std::vector<Level> levels_;
  bool too_deep_ = false;
};

}  // namespace

absl::StatusOr<ChatJson> ParseChatJson(std::string_view text) {
  Builder builder;
  const bool parsed = ChatJson::sax_parse(text.begin(), text.end(), &builder);
  return builder.Take(parsed);
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
