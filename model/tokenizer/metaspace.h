#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "model/tokenizer/json_fields.h"

namespace tandem {

// The settings of Metaspace, which SentencePiece vocabularies use: encoding writes a mark for every
// space and, by its scheme, one before the text; decoding does the reverse.
struct Metaspace {
  enum class PrependScheme : uint8_t { kAlways, kFirst, kNever };

  std::string mark;  // one character
  PrependScheme scheme = PrependScheme::kAlways;
  bool split = true;  // cut the text before every mark

  static absl::StatusOr<Metaspace> FromJson(const JsonFields& fields);
};

}  // namespace tandem
