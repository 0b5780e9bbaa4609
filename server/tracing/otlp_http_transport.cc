#include "server/tracing/otlp_http_transport.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "bench/serving/http_streams.h"
#include "fmt/format.h"
#include "server/tracing/trace_endpoint.h"

namespace tandem {
namespace {

constexpr size_t kMaxAnswerBytes = 64 << 10;
constexpr size_t kMaxShownBytes = 200;

SendResult::Kind KindOf(long code) {
  if (code >= 200 && code < 300) return SendResult::Kind::kTaken;
  const bool is_temporary = code == 429 || code == 502 || code == 503 || code == 504;
  return is_temporary ? SendResult::Kind::kRetry : SendResult::Kind::kRefused;
}

}  // namespace

OtlpHttpTransport::OtlpHttpTransport(std::string url, std::vector<std::string> headers)
    : url_(std::move(url)), headers_(std::move(headers)), shown_(HostOfUrl(url_)) {}

bool OtlpHttpTransport::IsLate() const {
  return std::chrono::steady_clock::now().time_since_epoch().count() >= stop_by_;
}

std::string OtlpHttpTransport::Shown(std::string text) const {
  const size_t at = text.find(url_);
  return at == std::string::npos ? text : text.replace(at, url_.size(), shown_);
}

SendResult OtlpHttpTransport::Send(const std::string& batch, TimePoint deadline) {
  const Duration left = deadline - std::chrono::steady_clock::now();
  if (left <= Duration{} || IsLate()) {
    return {.kind = SendResult::Kind::kRetry, .why = "no time is left to send them"};
  }
  // An empty "Expect:" keeps a large batch from waiting for "100 Continue" from the collector.
  std::vector<std::string> headers = {"Content-Type: application/json", "Expect:"};
  headers.insert(headers.end(), headers_.begin(), headers_.end());
  loadgen::HttpRequest request{.url = url_,
                               .headers = std::move(headers),
                               .body = batch,
                               .timeout = left,
                               .tls = {},
                               .max_answer_bytes = kMaxAnswerBytes,
                               .unwanted = [this] { return IsLate(); }};
  const absl::StatusOr<loadgen::HttpAnswer> answer = loadgen::Fetch(request);
  if (!answer.ok()) {
    const bool may_pass = !absl::IsFailedPrecondition(answer.status());
    return {.kind = may_pass ? SendResult::Kind::kRetry : SendResult::Kind::kRefused,
            .why = Shown(answer.status().ToString())};
  }
  SendResult result{.kind = KindOf(answer->code), .retry_after = answer->retry_after};
  if (result.kind != SendResult::Kind::kTaken) {
    result.why = fmt::format("{} answers {} {}", shown_, answer->code,
                             std::string_view(answer->body).substr(0, kMaxShownBytes));
  }
  return result;
}

}  // namespace tandem
