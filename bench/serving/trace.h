#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::loadgen {

// Published formats of request traces.
enum class TraceFormat : uint8_t {
  kMooncake,  // JSONL: timestamp (ms), input_length, output_length, hash_ids of 512-token blocks
  kBailian,   // JSONL: timestamp (s), the same lengths, hash_ids of 16-token blocks
  kBurstGpt,  // CSV: Timestamp (s), Request tokens, Response tokens, and more columns
  kAzure,     // CSV: TIMESTAMP (date and time), ContextTokens, GeneratedTokens
};

// "mooncake", "bailian", "burstgpt", "azure". INVALID_ARGUMENT lists them.
absl::StatusOr<TraceFormat> ParseTraceFormat(std::string_view name);

struct TraceRequest {
  double seconds = 0;        // after the first request of the trace; never falls
  int32_t input_tokens = 0;  // from 1 on, as output_tokens
  int32_t output_tokens = 0;
  // Requests that share the first ids share that much of their prompts.
  std::vector<uint64_t> hash_ids;
};

struct Trace {
  std::vector<TraceRequest> requests;
  int32_t block_tokens = 0;  // of one hash id; 0 without hash ids
  int64_t skipped = 0;       // rows without input or without output, such as failed requests
};

// Reads the first `max_requests` usable rows. INVALID_ARGUMENT names the line: wrong fields,
// numbers out of range, a time before that of the line above, no request at all.
absl::StatusOr<Trace> ParseTrace(TraceFormat format, std::string_view text, int64_t max_requests);

// The same from a file; NOT_FOUND when it cannot be read.
absl::StatusOr<Trace> ReadTrace(TraceFormat format, const std::string& path, int64_t max_requests);

// One row, with the time as it stands there, in seconds. Errors do not name the line.
absl::StatusOr<TraceRequest> ParseJsonRow(std::string_view line, double seconds_per_unit);

// Reads rows of a CSV file whose columns were found by their names.
class CsvRowParser {
 public:
  // `header` is the first line.
  static absl::StatusOr<CsvRowParser> Create(TraceFormat format, std::string_view header);
  absl::StatusOr<TraceRequest> Parse(std::string_view line) const;

 private:
  TraceFormat format_ = TraceFormat::kAzure;
  size_t time_column_ = 0;
  size_t input_column_ = 0;
  size_t output_column_ = 0;
};

}  // namespace tandem::loadgen
