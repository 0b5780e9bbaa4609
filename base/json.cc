#include "base/json.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace tandem {
namespace {

// Builds the document from the events of the parser. Every handler returns whether parsing goes on.
class Builder final : public nlohmann::json_sax<OrderedJson> {
 public:
  explicit Builder(const JsonBounds& bounds) : bounds_(bounds) {}

  ParsedJson Take(bool parsed) {
    if (parsed) return {.value = std::move(root_), .fault = std::nullopt};
    return {.value = nullptr, .fault = fault_ ? std::move(fault_) : JsonFault()};
  }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(int64_t value) override { return Add(value); }
  bool number_unsigned(uint64_t value) override { return Add(value); }
  bool number_float(double value, const std::string&) override { return Add(value); }
  bool string(std::string& value) override { return Add(std::move(value)); }
  bool binary(OrderedJson::binary_t&) override { return Fail({}); }
  bool start_object(size_t) override { return Open(OrderedJson::object()); }
  bool start_array(size_t) override { return Open(OrderedJson::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(std::string& name) override {
    Level& level = levels_.back();
    const size_t num_fields = level.value->size();
    const auto [at, is_new] = level.names.try_emplace(name, num_fields);
    if (!is_new && bounds_.repeated == RepeatedFields::kRefused) {
      return Fail({.kind = JsonFault::Kind::kRepeatedField, .position = 0, .field = name});
    }
    level.index = at->second;
    level.name = std::move(name);
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    constexpr int kOutOfRange = 406;
    // The parser's position counts the byte that it failed at, so the offset of that byte is one
    // less.
    return Fail({.kind = error.id == kOutOfRange ? JsonFault::Kind::kNumberTooLarge
                                                 : JsonFault::Kind::kSyntax,
                 .position = position == 0 ? 0 : position - 1,
                 .field = {}});
  }

 private:
  // An array or object that is not complete yet.
  struct Level {
    OrderedJson* value;
    std::string name;                                // the name of the object's next field
    size_t index = 0;                                // the place of the next field in the object
    absl::flat_hash_map<std::string, size_t> names;  // the place of each field by its name
  };

  bool Fail(JsonFault fault) {
    fault_ = std::move(fault);
    return false;
  }

  // Adds `value` to the innermost container that is open. The pointer to its place stays valid as
  // long as the value is open, because nothing is added beside an open container.
  OrderedJson* Place(OrderedJson value) {
    if (levels_.empty()) return &(root_ = std::move(value));
    Level& level = levels_.back();
    if (level.value->is_array()) {
      level.value->push_back(std::move(value));
      return &level.value->back();
    }
    auto& fields = level.value->get_ref<OrderedJson::object_t&>();
    if (level.index < fields.size()) {
      OrderedJson& known = (fields.begin() + static_cast<ptrdiff_t>(level.index))->second;
      return &(known = std::move(value));
    }
    fields.emplace_back(std::move(level.name), std::move(value));
    return &fields.back().second;
  }

  bool Add(OrderedJson value) {
    Place(std::move(value));
    return true;
  }

  bool Open(OrderedJson value) {
    if (levels_.size() == bounds_.depth) return Fail({.kind = JsonFault::Kind::kTooDeep});
    if (++containers_ > bounds_.containers) {
      return Fail({.kind = JsonFault::Kind::kTooManyContainers});
    }
    levels_.push_back({.value = Place(std::move(value)), .name = {}, .index = 0, .names = {}});
    return true;
  }

  bool Close() {
    levels_.pop_back();
    return true;
  }

  const JsonBounds bounds_;
  OrderedJson root_;
  std::vector<Level> levels_;
  size_t containers_ = 0;
  std::optional<JsonFault> fault_;
};

template <typename Json>
std::string TextOf(const Json& json, int indent) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace

nlohmann::json ParseJson(std::string_view text) {
  return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
}

bool IsJson(std::string_view text) { return nlohmann::json::accept(text); }

std::string JsonText(const nlohmann::json& json, int indent) { return TextOf(json, indent); }
std::string JsonText(const OrderedJson& json, int indent) { return TextOf(json, indent); }
std::string JsonString(std::string_view text) { return TextOf(OrderedJson(text), -1); }

ParsedJson ParseOrderedJson(std::string_view text, const JsonBounds& bounds) {
  Builder builder(bounds);
  const bool parsed = OrderedJson::sax_parse(text.begin(), text.end(), &builder);
  return builder.Take(parsed);
}

}  // namespace tandem
