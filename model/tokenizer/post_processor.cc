#include "model/tokenizer/post_processor.h"

#include <optional>

#include "base/status.h"

namespace tandem {
namespace {

constexpr size_t kMaxTemplateIds = 1024;

// Appends the ids of one {"SpecialToken": {"id": NAME}} of a template, from its table
// special_tokens.
absl::Status AppendSpecialToken(const JsonFields& fields, const JsonFields& table, int32_t id_limit,
                                std::vector<int32_t>& ids) {
  ASSIGN_OR_RETURN(const std::string name, fields.String("id"));
  ASSIGN_OR_RETURN(const JsonFields entry, table.Object(name));
  ASSIGN_OR_RETURN(const nlohmann::json* values, entry.Array("ids"));
  for (const nlohmann::json& value : *values) {
    const std::optional<int32_t> id = AsIndex(value, id_limit);
    if (!id.has_value()) {
      return InvalidArgument("{}: {} is no id of the vocabulary", entry.PathOf("ids"),
                             Excerpt(value));
    }
    ids.push_back(*id);
    if (ids.size() > kMaxTemplateIds) {
      return Unimplemented("{}: a template of more than {} ids", fields.path(), kMaxTemplateIds);
    }
  }
  return absl::OkStatus();
}

class Parser {
 public:
  explicit Parser(int32_t id_limit) : id_limit_(id_limit) {}

  absl::Status Append(const nlohmann::json& value, const std::string& path, int depth) {
    RETURN_IF_ERROR(CheckDepth(depth, path));
    ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(value, path));
    ASSIGN_OR_RETURN(const std::string type, fields.String("type"));
    if (type == "ByteLevel") {
      // ByteLevel only trims offsets, which this tokenizer does not compute.
      return fields.RefuseOthers({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    }
    if (type == "TemplateProcessing") return AppendTemplate(fields);
    if (type == "RobertaProcessing") return AppendRoberta(fields);
    if (type != "Sequence") {
      return Unimplemented(
          "{}: {} is not supported; supported: ByteLevel, RobertaProcessing, "
          "TemplateProcessing, Sequence",
          fields.PathOf("type"), type);
    }
    RETURN_IF_ERROR(fields.RefuseOthers({"type", "processors"}));
    ASSIGN_OR_RETURN(const nlohmann::json* items, fields.Array("processors"));
    for (size_t i = 0; i < items->size(); ++i) {
      RETURN_IF_ERROR(Append((*items)[i], fmt::format("{}.processors[{}]", path, i), depth + 1));
    }
    return absl::OkStatus();
  }

  PostProcessor Take() { return std::move(result_); }

 private:
  // Reads RobertaProcessing: <s> text </s>. The fields trim_offsets and add_prefix_space are about
  // offsets, which are not computed here.
  absl::Status AppendRoberta(const JsonFields& fields) {
    RETURN_IF_ERROR(
        fields.RefuseOthers({"type", "sep", "cls", "trim_offsets", "add_prefix_space"}));
    ASSIGN_OR_RETURN(const int32_t cls, TokenAndId(fields, "cls"));
    ASSIGN_OR_RETURN(const int32_t sep, TokenAndId(fields, "sep"));
    return Surround({.before = {cls}, .after = {sep}}, fields);
  }

  // The id of a field ["token", id].
  absl::StatusOr<int32_t> TokenAndId(const JsonFields& fields, std::string_view key) const {
    ASSIGN_OR_RETURN(const nlohmann::json* pair, fields.Array(key));
    const std::optional<int32_t> id =
        pair->size() == 2 ? AsIndex(pair->back(), id_limit_) : std::nullopt;
    if (id.has_value()) return *id;
    return InvalidArgument("{}: expected a token and its id in [0, {}), found {}",
                           fields.PathOf(key), id_limit_,
                           pair->size() == 2 ? Excerpt(pair->back()) : Excerpt(*pair));
  }

  // Puts ids around the text. A later processor goes around what an earlier one made.
  absl::Status Surround(const PostProcessor& around, const JsonFields& fields) {
    result_.before.insert(result_.before.begin(), around.before.begin(), around.before.end());
    result_.after.insert(result_.after.end(), around.after.begin(), around.after.end());
    if (result_.before.size() + result_.after.size() > kMaxTemplateIds) {
      return Unimplemented("{}: templates of more than {} ids", fields.path(), kMaxTemplateIds);
    }
    return absl::OkStatus();
  }

  absl::Status AppendTemplate(const JsonFields& fields) {
    RETURN_IF_ERROR(fields.RefuseOthers({"type", "single", "pair", "special_tokens"}));
    ASSIGN_OR_RETURN(const nlohmann::json* pieces, fields.Array("single"));
    ASSIGN_OR_RETURN(const JsonFields table, fields.Object("special_tokens"));
    PostProcessor around;
    bool text_seen = false;
    for (size_t i = 0; i < pieces->size(); ++i) {
      ASSIGN_OR_RETURN(
          const JsonFields piece,
          JsonFields::Of((*pieces)[i], fmt::format("{}[{}]", fields.PathOf("single"), i)));
      RETURN_IF_ERROR(piece.RefuseOthers({"SpecialToken", "Sequence"}));
      if (piece.Find("Sequence") != nullptr) {
        if (text_seen) return Unimplemented("{}: the text twice", piece.path());
        text_seen = true;
        continue;
      }
      ASSIGN_OR_RETURN(const JsonFields token, piece.Object("SpecialToken"));
      RETURN_IF_ERROR(
          AppendSpecialToken(token, table, id_limit_, text_seen ? around.after : around.before));
    }
    if (!text_seen) return Unimplemented("{}: no text in it", fields.PathOf("single"));
    return Surround(around, fields);
  }

  const int32_t id_limit_;
  PostProcessor result_;
};

}  // namespace

absl::StatusOr<PostProcessor> PostProcessor::FromJson(const nlohmann::json* value, std::string path,
                                                      int32_t id_limit) {
  Parser parser(id_limit);
  if (value != nullptr) RETURN_IF_ERROR(parser.Append(*value, path, 0));
  return parser.Take();
}

}  // namespace tandem
