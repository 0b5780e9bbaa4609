// Traces of foreign bytes. The first byte chooses the format, the rest is the file.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "bench/serving/lengths.h"
#include "bench/serving/trace.h"

// What a parser accepts can be replayed: times never fall, lengths are in range.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem::loadgen;
  if (size == 0) return 0;
  constexpr TraceFormat kFormats[] = {TraceFormat::kMooncake, TraceFormat::kBailian,
                                      TraceFormat::kBurstGpt, TraceFormat::kAzure};
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  constexpr int64_t kMost = 1000;
  const auto trace = ParseTrace(kFormats[data[0] % 4], text, kMost);
  if (!trace.ok()) return 0;
  const auto count = static_cast<int64_t>(trace->requests.size());
  TANDEM_CHECK(count >= 1 && count <= kMost, "a trace has no request or too many");
  double latest = 0;
  for (const TraceRequest& request : trace->requests) {
    TANDEM_CHECK(std::isfinite(request.seconds) && request.seconds >= latest, "time falls");
    latest = request.seconds;
    for (const int32_t tokens : {request.input_tokens, request.output_tokens}) {
      TANDEM_CHECK(tokens >= 1 && tokens <= kMaxLength, "a length is out of range");
    }
  }
  return 0;
}
