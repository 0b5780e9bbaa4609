// Answers of foreign HTTP servers: the first byte says in which pieces the rest arrives.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "bench/serving/openai_messages.h"
#include "bench/serving/sse_parser.h"

namespace tandem::loadgen {
namespace {

struct Outcome {
  std::vector<bool> had_output;
  CallEnd end;
};

Outcome Read(std::string_view stream, size_t piece) {
  Outcome outcome;
  OpenAiAnswer answer;
  SseParser parser([&](std::string_view data) { outcome.had_output.push_back(answer.Add(data)); });
  for (size_t at = 0; at < stream.size(); at += piece) parser.Feed(stream.substr(at, piece));
  outcome.end = answer.Take(absl::OkStatus());
  return outcome;
}

}  // namespace
}  // namespace tandem::loadgen

// How the network cuts the stream makes no difference.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem::loadgen;
  if (size == 0) return 0;
  const std::string_view stream(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Outcome whole = Read(stream, std::max<size_t>(stream.size(), 1));
  const Outcome cut = Read(stream, data[0] % 16 + 1);
  TANDEM_CHECK(whole.had_output == cut.had_output, "events differ");
  TANDEM_CHECK(whole.end.status == cut.end.status && whole.end.whole == cut.end.whole &&
                   whole.end.output_tokens == cut.end.output_tokens,
               "the ends differ");
  const auto models = ParseModels(stream, "");
  TANDEM_CHECK(!models.ok() || models->max_context_tokens >= 0, "a context is negative");
  for (const int32_t token : ParseTokens(stream)) TANDEM_CHECK(token >= 0, "an id is negative");
  TANDEM_CHECK(ErrorText(stream).size() <= 300, "an error is long");
  return 0;
}
