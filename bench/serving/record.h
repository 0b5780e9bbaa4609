#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "bench/serving/backend.h"

namespace tandem::loadgen {

inline double ToSeconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

struct ChunkArrival {
  Duration at{};  // since the start of the run
  int32_t tokens = 0;
};

// What came of one request. All times are since the start of the run.
struct RequestRecord {
  std::string id;
  int32_t prompt_tokens = 0;
  int32_t wanted_tokens = 0;
  Duration scheduled{};  // its arrival; in a closed loop, when a slot for it became free
  Duration due{};        // when the generator could send it: its arrival, or later a free slot
  Duration sent{};
  Duration ended{};
  std::vector<ChunkArrival> chunks;
  bool cancel_planned = false;  // and the generator did cancel it
  bool abandoned = false;       // it was still running when the time for draining was over
  CallEnd end;
};

// Only a complete request has latencies that count, and only it can be good.
enum class Verdict : uint8_t {
  kComplete,
  kCancelled,    // by the generator, on purpose
  kFailed,       // the server or the network answered with an error
  kTruncated,    // the stream ended without saying that it is whole
  kWrongLength,  // prompt or output had another number of tokens than asked for
};
std::string_view Name(Verdict verdict);

// With `ignore_eos`, the output must have exactly the wanted number of tokens; without, a model
// that stops early is right, too.
Verdict Judge(const RequestRecord& record, bool ignore_eos);

// One sentence that says why a request is not complete; empty when it is.
std::string WhyNotComplete(const RequestRecord& record, bool ignore_eos);

int32_t OutputTokens(const RequestRecord& record);

// Milliseconds; absent where the request gave none.
struct RequestLatency {
  std::optional<double> ttft;            // send -> first chunk with tokens
  std::optional<double> scheduled_ttft;  // scheduled arrival -> first chunk with tokens
  std::optional<double>
      tpot;        // (last chunk - first chunk) / (output tokens - 1); from two tokens on
  double e2e = 0;  // send -> end of the stream
  double scheduled_e2e = 0;
  double client_queue = 0;  // scheduled arrival -> a free slot of --max-concurrency
  double lag = 0;           // the generator's own: due -> sent
};
RequestLatency LatencyOf(const RequestRecord& record);

// Milliseconds between chunks.
std::vector<double> ChunkGaps(const RequestRecord& record);
// Milliseconds per token after the first chunk: the gap before a chunk of k tokens counts k times
// as gap / k.
std::vector<double> TokenGaps(const RequestRecord& record);

}  // namespace tandem::loadgen
