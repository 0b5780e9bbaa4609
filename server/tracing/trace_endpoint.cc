#include "server/tracing/trace_endpoint.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/strings/ascii.h"
#include "base/status.h"
#include "server/http/http_message.h"

namespace tandem {
namespace {

constexpr std::string_view kPath = "/v1/traces";

// A URL and the flag or variable that gave it, for errors.
struct Named {
  const char* source;
  std::string_view url;
};

// Checks a collector's URL. Returns the index at which its path begins; npos where it has none.
absl::StatusOr<size_t> CheckUrl(const Named& named) {
  const std::string_view url = named.url;
  const size_t scheme = url.starts_with("http://") ? 7 : url.starts_with("https://") ? 8 : 0;
  const size_t path = url.find_first_of("/?#", scheme);
  const std::string_view host = url.substr(scheme, path == url.npos ? url.npos : path - scheme);
  const bool is_printable =
      std::ranges::all_of(url, [](char c) { return c > ' ' && c <= '~' && c != '"'; });
  if (scheme == 0 || host.empty() || !is_printable) {
    return InvalidArgument("{} \"{}\" is no URL of a collector: give http://host:4318{}",
                           named.source, url, kPath);
  }
  if (host.find('@') != host.npos) {  // the error does not repeat it: it may hold a password
    return InvalidArgument(
        "{} has a user in its URL, which would be seen in the list of processes: give "
        "what the receiver asks for in OTEL_EXPORTER_OTLP_HEADERS",
        named.source);
  }
  return path;
}

std::string WithPath(std::string_view base) {
  while (base.ends_with('/')) base.remove_suffix(1);
  return std::string(base) + std::string(kPath);
}

void Set(std::string key, std::string value, SpanAttributes& attributes) {
  const auto same = std::ranges::find(attributes, key, &SpanAttribute::key);
  if (same != attributes.end()) attributes.erase(same);
  attributes.push_back({std::move(key), std::move(value)});
}

std::string_view Stripped(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// A variable of the environment that is a list of key=value with percent-encoded values.
struct PairList {
  const char* variable;
  std::string_view list;
  bool is_secret = false;  // errors name the position of an entry and not its text
};

// Later entries replace earlier ones of the same key.
absl::Status AddPairs(PairList pairs, SpanAttributes& attributes) {
  std::string_view& list = pairs.list;
  int number = 0;
  while (!list.empty()) {
    const size_t comma = list.find(',');
    const std::string_view pair = Stripped(list.substr(0, comma));
    list.remove_prefix(comma == list.npos ? list.size() : comma + 1);
    ++number;
    if (pair.empty()) continue;
    const size_t equals = pair.find('=');
    const std::string_view key = Stripped(pair.substr(0, equals));
    const std::optional<std::string> value =
        equals == pair.npos ? std::nullopt : DecodePercent(Stripped(pair.substr(equals + 1)));
    if (key.empty() || !value) {
      return InvalidArgument(
          "{}: {} is no key=value with percent-encoded bytes", pairs.variable,
          pairs.is_secret ? fmt::format("entry {}", number) : fmt::format("\"{}\"", pair));
    }
    Set(std::string(key), *value, attributes);
  }
  return absl::OkStatus();
}

// Whether a header may be set: name and value have the characters that RFC 9110 allows, and the
// header is none that the HTTP client sets itself to describe the body.
bool IsHeader(std::string_view name, std::string_view value) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  const bool is_name = std::ranges::all_of(
      name, [&](char c) { return absl::ascii_isalnum(c) || kMarks.find(c) != kMarks.npos; });
  const bool is_value = std::ranges::all_of(value, [](char c) { return c >= ' ' && c <= '~'; });
  const std::string lower = absl::AsciiStrToLower(absl::string_view(name.data(), name.size()));
  return is_name && is_value && lower != "content-length" && lower != "content-type" &&
         lower != "transfer-encoding" && lower != "host";
}

}  // namespace

absl::StatusOr<std::vector<std::string>> TraceHeaders(const TraceEnvironment& environment) {
  constexpr char kOfAll[] = "OTEL_EXPORTER_OTLP_HEADERS";
  constexpr char kOfTraces[] = "OTEL_EXPORTER_OTLP_TRACES_HEADERS";
  SpanAttributes pairs;
  RETURN_IF_ERROR(AddPairs({kOfAll, environment.headers, true}, pairs));
  RETURN_IF_ERROR(AddPairs({kOfTraces, environment.traces_headers, true}, pairs));
  std::vector<std::string> lines;
  for (const SpanAttribute& pair : pairs) {
    const std::string& value = std::get<std::string>(pair.value);
    if (!IsHeader(pair.key, value)) {
      return InvalidArgument("{} or {}: \"{}\" is no header that may be set, or its value is none",
                             kOfAll, kOfTraces, pair.key);
    }
    lines.push_back(pair.key + ": " + value);
  }
  return lines;
}

absl::StatusOr<std::string> TraceUrl(const TraceTuning& tuning) {
  const TraceEnvironment& environment = tuning.environment;
  if (!tuning.endpoint.empty()) {
    ASSIGN_OR_RETURN(const size_t path, CheckUrl({"--trace-endpoint", tuning.endpoint}));
    const bool has_path = path != std::string::npos && tuning.endpoint.substr(path) != "/";
    return has_path ? tuning.endpoint : WithPath(tuning.endpoint);
  }
  if (!environment.traces_endpoint.empty()) {
    RETURN_IF_ERROR(
        CheckUrl({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", environment.traces_endpoint}).status());
    return environment.traces_endpoint;
  }
  if (environment.endpoint.empty()) return "";
  RETURN_IF_ERROR(CheckUrl({"OTEL_EXPORTER_OTLP_ENDPOINT", environment.endpoint}).status());
  return WithPath(environment.endpoint);
}

std::string HostOfUrl(const std::string& url) {
  return url.substr(0, url.find_first_of("/?#", url.find("://") + 3));
}

absl::StatusOr<SpanAttributes> ResourceAttributes(const TraceEnvironment& environment,
                                                  const std::string& default_service) {
  SpanAttributes attributes = {{"service.name", default_service}};
  RETURN_IF_ERROR(
      AddPairs({"OTEL_RESOURCE_ATTRIBUTES", environment.resource_attributes}, attributes));
  if (!environment.service_name.empty()) Set("service.name", environment.service_name, attributes);
  return attributes;
}

}  // namespace tandem
