#pragma once

#include "absl/status/statusor.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "model/tokenizer/tokenizer.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

using BadWords = google::protobuf::RepeatedPtrField<v1::TokenIds>;

// The tokens of each word at the beginning of a text, and of each behind a space where that gives
// other tokens, as vLLM does: as many, of which the first differs. Spaces at the front of a word are
// left out. Errors as Tokenizer::Encode.
absl::StatusOr<BadWords> TokenizeBadWords(
    const Tokenizer& tokenizer, const google::protobuf::RepeatedPtrField<std::string>& words);

}  // namespace tandem
