#include "server/openai/json_body.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/status.h"

namespace tandem::openai {
namespace {

// Builds the document. Every handler returns whether parsing goes on.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(std::string_view body) : body_(body) {}

  absl::StatusOr<Json> Take(bool parsed) {
    if (!error_.ok()) return error_;
    if (!parsed) return InvalidArgument("the body is no JSON");
    return std::move(root_);
  }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(int64_t value) override { return Add(value); }
  bool number_unsigned(uint64_t value) override { return Add(value); }
  bool number_float(double value, const std::string&) override { return Add(value); }
  bool string(std::string& value) override { return Add(std::move(value)); }
  bool binary(Json::binary_t&) override { return Fail(InvalidArgument("the body is no JSON")); }
  bool start_object(size_t) override { return Open(Json::object()); }
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(std::string& name) override {
    Level& level = levels_.back();
    if (!level.names.insert(name).second) {
      return Fail(InvalidArgument("the body names the field {} twice in one object",
                                  JsonText(name.substr(0, kMaxQuoted))));
    }
    level.name = std::move(name);
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // The parser counts the byte that it failed at.
    const std::string_view read = body_.substr(0, position == 0 ? 0 : position - 1);
    const auto line = 1 + std::count(read.begin(), read.end(), '\n');
    const size_t begin = read.rfind('\n') == std::string_view::npos ? 0 : read.rfind('\n') + 1;
    constexpr int kOutOfRange = 406;
    if (error.id == kOutOfRange) {
      return Fail(InvalidArgument("the body has a number that is too large at line {}, column {}",
                                  line, read.size() - begin + 1));
    }
    return Fail(InvalidArgument("the body is not valid JSON: syntax error at line {}, column {}",
                                line, read.size() - begin + 1));
  }

 private:
  static constexpr size_t kMaxQuoted = 80;

  // An array or object that is not complete yet.
  struct Level {
    Json* value;
    std::string name;  // of the object's next field
    absl::flat_hash_set<std::string> names;
  };

  bool Fail(absl::Status status) {
    error_ = std::move(status);
    return false;
  }

  // Elements stay where they are while their parents are open: nothing is added beside an open one.
  Json* Place(Json value) {
    if (levels_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Level& level = levels_.back();
    if (level.value->is_array()) {
      level.value->push_back(std::move(value));
      return &level.value->back();
    }
    // Not operator[], which looks through all fields that there are; their names are known to differ.
    auto& fields = level.value->get_ref<Json::object_t&>();
    fields.emplace_back(std::move(level.name), std::move(value));
    return &fields.back().second;
  }

  bool Add(Json value) {
    Place(std::move(value));
    return true;
  }

  bool Open(Json value) {
    if (levels_.size() == kMaxJsonDepth) {
      return Fail(
          InvalidArgument("the body nests arrays and objects more than {} deep", kMaxJsonDepth));
    }
    if (++containers_ > kMaxJsonContainers) {
      return Fail(
          InvalidArgument("the body has more than {} arrays and objects", kMaxJsonContainers));
    }
    levels_.push_back({.value = Place(std::move(value)), .name = {}, .names = {}});
    return true;
  }

  bool Close() {
    levels_.pop_back();
    return true;
  }

  const std::string_view body_;
  Json root_;
  std::vector<Level> levels_;
  size_t containers_ = 0;
  absl::Status error_;
};

}  // namespace

absl::StatusOr<Json> ParseJsonBody(std::string_view body) {
  Builder builder(body);
  const bool parsed = Json::sax_parse(body.begin(), body.end(), &builder);
  return builder.Take(parsed);
}

std::string JsonText(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tandem::openai
