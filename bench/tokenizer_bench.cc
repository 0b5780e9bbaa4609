// How fast one thread loads a tokenizer, encodes a text and streams its ids back into text.
//   tokenizer_bench [--model DIRECTORY] [--text FILE] [--rounds N] [--json FILE]
// Times are of the processor, not of the wall: other work on the machine does not count.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "bench/flags.h"
#include "bench/result.h"
#include "model/tokenizer/detokenizer.h"
#include "model/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"

namespace tandem {
namespace {

struct Flags {
  std::string model = "models/sample";
  std::string text = "tests/golden/tokenizer/phrases.txt";
  std::string json;
  int32_t rounds = 50;
};

double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// The median over `rounds` of the seconds that `work` takes.
template <typename Work>
double MedianSeconds(int rounds, Work work) {
  std::vector<double> seconds;
  for (int i = 0; i < rounds; ++i) {
    const double begin = CpuSeconds();
    work();
    seconds.push_back(CpuSeconds() - begin);
  }
  std::nth_element(seconds.begin(), seconds.begin() + rounds / 2, seconds.end());
  return seconds[static_cast<size_t>(rounds / 2)];
}

absl::Status Run(const Flags& flags) {
  std::ifstream file(flags.text, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (text.empty()) return InvalidArgument("{}: no text to encode", flags.text);
  ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, LoadTokenizer(flags.model));
  const double load =
      MedianSeconds(3, [&] { TANDEM_CHECK(LoadTokenizer(flags.model).ok(), "it loaded before"); });

  std::vector<int32_t> ids;
  const double encode = MedianSeconds(flags.rounds, [&] {
    auto encoded = tokenizer->Encode(text, {});
    TANDEM_CHECK(encoded.ok(), "the text cannot be encoded");
    ids = *std::move(encoded);
  });
  size_t streamed_bytes = 0;
  const double stream = MedianSeconds(flags.rounds, [&] {
    Detokenizer detokenizer(*tokenizer);
    streamed_bytes = 0;
    for (const int32_t id : ids) streamed_bytes += detokenizer.Push(id).size();
    streamed_bytes += detokenizer.Flush().size();
  });
  const nlohmann::json result = {
      {"bench", "tokenizer"},
      {"model", flags.model},
      {"vocab_size", tokenizer->vocab_size()},
      {"load_ms", load * 1e3},
      {"text_bytes", text.size()},
      {"ids", ids.size()},
      {"encode_mb_per_s", static_cast<double>(text.size()) / 1e6 / encode},
      {"stream_ids_per_s", static_cast<double>(ids.size()) / stream},
      {"streamed_bytes", streamed_bytes}};
  std::puts(result.dump(2).c_str());
  return WriteJson(result, flags.json);
}

absl::Status Main(int argc, char** argv) {
  Flags flags;
  FlagParser parser;
  parser.Text("--model", flags.model);
  parser.Text("--text", flags.text);
  parser.Count("--rounds", flags.rounds);
  parser.Text("--json", flags.json);
  RETURN_IF_ERROR(parser.Parse(argc, argv));
  return Run(flags);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::ExitCode("tokenizer_bench", tandem::Main(argc, argv));
}
