#include "model/tokenizer/metaspace.h"

#include "base/status.h"
#include "model/tokenizer/unicode.h"

namespace tandem {
namespace {

absl::StatusOr<Metaspace::PrependScheme> ParseScheme(const JsonFields& fields) {
  using Scheme = Metaspace::PrependScheme;
  ASSIGN_OR_RETURN(const std::string scheme, fields.String("prepend_scheme", "always"));
  ASSIGN_OR_RETURN(const bool add_prefix_space, fields.Bool("add_prefix_space", true));
  if (!add_prefix_space) {
    // The field add_prefix_space with the value false is the older spelling of the scheme "never".
    if (fields.Find("prepend_scheme") == nullptr || scheme == "never") return Scheme::kNever;
    return InvalidArgument("{}: {} contradicts add_prefix_space: false",
                           fields.PathOf("prepend_scheme"), scheme);
  }
  if (scheme == "always") return Scheme::kAlways;
  if (scheme == "first") return Scheme::kFirst;
  if (scheme == "never") return Scheme::kNever;
  return Unimplemented("{}: {} is not supported; supported: always, first, never",
                       fields.PathOf("prepend_scheme"), scheme);
}

}  // namespace

absl::StatusOr<Metaspace> Metaspace::FromJson(const JsonFields& fields) {
  RETURN_IF_ERROR(fields.RefuseOthers(
      {"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"}));
  Metaspace metaspace;
  ASSIGN_OR_RETURN(metaspace.mark, fields.String("replacement"));
  if (metaspace.mark.empty() || FirstCharacter(metaspace.mark).length != metaspace.mark.size()) {
    return InvalidArgument("{}: expected one character, found \"{}\"", fields.PathOf("replacement"),
                           metaspace.mark);
  }
  ASSIGN_OR_RETURN(metaspace.scheme, ParseScheme(fields));
  ASSIGN_OR_RETURN(metaspace.split, fields.Bool("split", true));
  return metaspace;
}

}  // namespace tandem
