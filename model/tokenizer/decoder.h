#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer/decode_step.h"
#include "model/tokenizer/json_fields.h"

namespace tandem {

// The decoder of a tokenizer.json: a chain of steps over a stream of tokens.
class Decoder {
 public:
  // Parses `value`, the decoder at `path` of a tokenizer.json. Null stands for no decoder: the
  // tokens with a space between them.
  static absl::StatusOr<Decoder> FromJson(const nlohmann::json* value, std::string path);

  // The state of decoding one text. Thread: one at a time. It may outlive the decoder.
  class Run {
   public:
    // Returns the text that is final after `token`, which has the vocabulary's spelling.
    std::string Push(std::string_view token);
    std::string Finish();

   private:
    friend class Decoder;
    std::string Through(std::vector<std::string> texts, size_t first_step);

    std::vector<std::unique_ptr<DecodeStep>> steps_;
  };
  Run Start() const;

 private:
  absl::Status Append(const nlohmann::json& value, const std::string& path, int depth);
  absl::StatusOr<std::unique_ptr<DecodeStep>> ParseTokenStep(const JsonFields& fields,
                                                             const std::string& type);
  absl::StatusOr<std::unique_ptr<DecodeStep>> ParseStrip(const JsonFields& fields) const;

  std::vector<std::unique_ptr<DecodeStep>> steps_;
  bool fused_ = false;  // whether the steps so far join all tokens into one text
};

}  // namespace tandem
