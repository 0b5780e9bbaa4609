#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/serving/backend.h"

namespace tandem::loadgen {

// "id" and, where the server says so, the context of the model named `wanted`, or of the first one.
// NOT_FOUND lists the models that there are; INVALID_ARGUMENT for what is no answer of /v1/models.
absl::StatusOr<ServerInfo> ParseModels(std::string_view json, const std::string& wanted);

// The "tokens" of an answer of /tokenize; empty when there are none.
std::vector<int32_t> ParseTokens(std::string_view json);

// The message in the body of an error, or the start of the body.
std::string ErrorText(std::string_view body);

// OK for an answer of the HTTP status 200; for others the code that Tandem has for what went wrong,
// with the text of the error.
absl::Status StatusOfAnswer(long http, std::string_view body);

// Puts an answer together from the data of its events.
class OpenAiAnswer {
 public:
  // True: the event brought text, or another part of the output.
  bool Add(std::string_view data);
  // `transport`: how the exchange itself ended. An error inside of the stream wins over OK.
  CallEnd Take(absl::Status transport);

 private:
  CallEnd end_;
  bool done_ = false;
  bool finished_ = false;
};

}  // namespace tandem::loadgen
