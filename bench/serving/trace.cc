#include "bench/serving/trace.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>

#include "base/status.h"
#include "bench/serving/lengths.h"

namespace tandem::loadgen {
namespace {

constexpr double kLongestTraceSeconds = 1e9;

bool IsCsv(TraceFormat format) {
  return format == TraceFormat::kBurstGpt || format == TraceFormat::kAzure;
}

int32_t BlockTokens(TraceFormat format) {
  constexpr int32_t kMooncakeBlock = 512;
  constexpr int32_t kBailianBlock = 16;
  if (format == TraceFormat::kMooncake) return kMooncakeBlock;
  return format == TraceFormat::kBailian ? kBailianBlock : 0;
}

absl::Status CheckLengths(const TraceRequest& row) {
  for (const int32_t length : {row.input_tokens, row.output_tokens}) {
    if (length < 0 || length > kMaxLength) {
      return InvalidArgument("a length of {} tokens is not within 0 and {}", length, kMaxLength);
    }
  }
  return absl::OkStatus();
}

// Cuts the next line off `text`, without its line feed and carriage return.
std::string_view TakeLine(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// Collects rows and refuses those that go back in time.
class TraceBuilder {
 public:
  explicit TraceBuilder(TraceFormat format) { trace_.block_tokens = BlockTokens(format); }

  int64_t size() const { return static_cast<int64_t>(trace_.requests.size()); }

  absl::Status Add(TraceRequest row) {
    RETURN_IF_ERROR(CheckLengths(row));
    if (!first_) first_ = latest_ = row.seconds;
    if (row.seconds < latest_) {
      return InvalidArgument(
          "its time is {} s before that of the row above: sort the trace by time",
          latest_ - row.seconds);
    }
    latest_ = row.seconds;
    row.seconds -= *first_;
    if (row.seconds > kLongestTraceSeconds) {
      return InvalidArgument("its time is {} s after the first: a trace may last {} s", row.seconds,
                             kLongestTraceSeconds);
    }
    if (row.input_tokens == 0 || row.output_tokens == 0) {
      ++trace_.skipped;
      return absl::OkStatus();
    }
    trace_.requests.push_back(std::move(row));
    return absl::OkStatus();
  }

  Trace Take() { return std::move(trace_); }

 private:
  Trace trace_;
  std::optional<double> first_;
  double latest_ = 0;
};

}  // namespace

absl::StatusOr<TraceFormat> ParseTraceFormat(std::string_view name) {
  if (name == "mooncake") return TraceFormat::kMooncake;
  if (name == "bailian") return TraceFormat::kBailian;
  if (name == "burstgpt") return TraceFormat::kBurstGpt;
  if (name == "azure") return TraceFormat::kAzure;
  return InvalidArgument("{} is no trace format: use mooncake, bailian, burstgpt or azure", name);
}

absl::StatusOr<Trace> ParseTrace(TraceFormat format, std::string_view text, int64_t max_requests) {
  TraceBuilder builder(format);
  std::optional<CsvRowParser> csv;
  const double seconds_per_unit = format == TraceFormat::kMooncake ? 1e-3 : 1;
  for (int64_t number = 1; !text.empty() && builder.size() < max_requests; ++number) {
    const std::string_view line = TakeLine(text);
    if (line.empty()) continue;
    absl::Status status;
    if (IsCsv(format) && !csv) {
      auto made = CsvRowParser::Create(format, line);
      status = made.status();
      if (made.ok()) csv = *made;
    } else {
      auto row = csv ? csv->Parse(line) : ParseJsonRow(line, seconds_per_unit);
      status = row.ok() ? builder.Add(*std::move(row)) : row.status();
    }
    if (!status.ok()) return Annotate(status, fmt::format("line {}", number));
  }
  if (builder.size() == 0) {
    return InvalidArgument("it has no request with input and output: is it the right file?");
  }
  return builder.Take();
}

absl::StatusOr<Trace> ReadTrace(TraceFormat format, const std::string& path, int64_t max_requests) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) return NotFound("--dataset-path={}: the file cannot be read", path);
  auto trace = ParseTrace(format, text, max_requests);
  if (!trace.ok()) return Annotate(trace.status(), path);
  return trace;
}

}  // namespace tandem::loadgen
