#include "bench/serving/record.h"

#include <numeric>

#include "fmt/format.h"

namespace tandem::loadgen {
namespace {

int32_t ReceivedTokens(const RequestRecord& record) {
  return std::accumulate(record.chunks.begin(), record.chunks.end(), 0,
                         [](int32_t sum, const ChunkArrival& chunk) { return sum + chunk.tokens; });
}

// What is wrong with the lengths of a whole answer; empty when nothing is.
std::string LengthFault(const RequestRecord& record, bool ignore_eos) {
  const CallEnd& end = record.end;
  const int32_t output = OutputTokens(record);
  if (end.counts_are_exact && end.output_tokens >= 0 && ReceivedTokens(record) != output) {
    return fmt::format("{} tokens arrived, but the server counts {}", ReceivedTokens(record),
                       output);
  }
  if (end.counts_are_exact && end.prompt_tokens >= 0 && end.prompt_tokens != record.prompt_tokens) {
    return fmt::format("the prompt has {} tokens, but the server counts {}", record.prompt_tokens,
                       end.prompt_tokens);
  }
  const bool stopped = !ignore_eos && end.finish_reason == "stop";
  if (output > record.wanted_tokens || output < 1 || (output < record.wanted_tokens && !stopped)) {
    return fmt::format("the output has {} tokens instead of {}", output, record.wanted_tokens);
  }
  return {};
}

}  // namespace

std::string_view Name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kComplete:
      return "complete";
    case Verdict::kCancelled:
      return "cancelled";
    case Verdict::kFailed:
      return "failed";
    case Verdict::kTruncated:
      return "truncated";
    case Verdict::kWrongLength:
      return "wrong length";
  }
  return "unknown";
}

Verdict Judge(const RequestRecord& record, bool ignore_eos) {
  if (record.cancel_planned && absl::IsCancelled(record.end.status)) return Verdict::kCancelled;
  if (!record.end.status.ok()) return Verdict::kFailed;
  if (!record.end.whole) return Verdict::kTruncated;
  return LengthFault(record, ignore_eos).empty() ? Verdict::kComplete : Verdict::kWrongLength;
}

std::string WhyNotComplete(const RequestRecord& record, bool ignore_eos) {
  switch (Judge(record, ignore_eos)) {
    case Verdict::kComplete:
      return {};
    case Verdict::kCancelled:
      return "the generator cancelled it, as planned";
    case Verdict::kFailed:
      if (record.abandoned) return "it was still running when the time for draining was over";
      return record.end.status.ToString();
    case Verdict::kTruncated:
      return fmt::format("the stream ended after {} of {} tokens without saying that it is whole",
                         ReceivedTokens(record), record.wanted_tokens);
    case Verdict::kWrongLength:
      return LengthFault(record, ignore_eos);
  }
  return {};
}

int32_t OutputTokens(const RequestRecord& record) {
  return record.end.output_tokens >= 0 ? record.end.output_tokens : ReceivedTokens(record);
}

RequestLatency LatencyOf(const RequestRecord& record) {
  RequestLatency latency;
  latency.e2e = ToMilliseconds(record.ended - record.sent);
  latency.scheduled_e2e = ToMilliseconds(record.ended - record.scheduled);
  latency.client_queue = ToMilliseconds(record.due - record.scheduled);
  latency.lag = ToMilliseconds(record.sent - record.due);
  if (record.chunks.empty()) return latency;
  const Duration first = record.chunks.front().at;
  latency.ttft = ToMilliseconds(first - record.sent);
  latency.scheduled_ttft = ToMilliseconds(first - record.scheduled);
  const int32_t tokens = OutputTokens(record);
  if (tokens > 1) latency.tpot = ToMilliseconds(record.chunks.back().at - first) / (tokens - 1);
  return latency;
}

std::vector<double> ChunkGaps(const RequestRecord& record) {
  std::vector<double> gaps;
  for (size_t i = 1; i < record.chunks.size(); ++i) {
    gaps.push_back(ToMilliseconds(record.chunks[i].at - record.chunks[i - 1].at));
  }
  return gaps;
}

std::vector<double> TokenGaps(const RequestRecord& record) {
  std::vector<double> gaps;
  for (size_t i = 1; i < record.chunks.size(); ++i) {
    const double gap = ToMilliseconds(record.chunks[i].at - record.chunks[i - 1].at);
    const int32_t tokens = record.chunks[i].tokens;
    gaps.insert(gaps.end(), static_cast<size_t>(tokens), gap / tokens);
  }
  return gaps;
}

}  // namespace tandem::loadgen
