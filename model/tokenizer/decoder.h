#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer/json_fields.h"

namespace tandem {

// One step of turning tokens into text: takes strings one by one and passes strings on, some of
// them later. What it passes on is whole characters.
class DecodeStep {
 public:
  virtual ~DecodeStep() = default;
  virtual void Push(std::string_view token, std::vector<std::string>& out) = 0;
  virtual void Finish(std::vector<std::string>& out) = 0;
  // The same step at its start.
  virtual std::unique_ptr<DecodeStep> Fresh() const = 0;
};

// The decoder of a tokenizer.json, as a chain of steps that work on a stream.
class Decoder {
 public:
  // `value` is the field `path`.
  static absl::StatusOr<Decoder> FromJson(const nlohmann::json* value, std::string path);

  // The steps of one text. Thread: one at a time; independent of the decoder's lifetime.
  class Run {
   public:
    // The text that became certain with `token`, as the vocabulary writes it.
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
  bool fused_ = false;  // the steps so far make one text of all tokens
};

}  // namespace tandem
