#pragma once

#include "absl/status/statusor.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "model/tokenizer/tokenizer.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

using BadWords = google::protobuf::RepeatedPtrField<v1::TokenIds>;

// Tokenizes each word as vLLM does: as it stands at the beginning of a text, and behind a space.
// The tokens behind a space are added only where they are as many and the first one differs. Spaces
// at the front of a word are left out. Errors as Tokenizer::Encode.
absl::StatusOr<BadWords> TokenizeBadWords(
    const Tokenizer& tokenizer, const google::protobuf::RepeatedPtrField<std::string>& words);

}  // namespace tandem
