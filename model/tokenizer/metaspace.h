#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "model/tokenizer/json_fields.h"

namespace tandem {

// The settings of the step Metaspace, which SentencePiece vocabularies use. Encoding replaces every
// space by a mark and, depending on the scheme, prepends a mark to the text; decoding does the
// reverse.
struct Metaspace {
  enum class PrependScheme : uint8_t { kAlways, kFirst, kNever };

  std::string mark;  // one character
  PrependScheme scheme = PrependScheme::kAlways;
  bool split = true;  // whether the text is split before every mark

  static absl::StatusOr<Metaspace> FromJson(const JsonFields& fields);
};

}  // namespace tandem
