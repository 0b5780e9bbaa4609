#include "server/tracing/trace_endpoint.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "server/http/http_message.h"

namespace tandem {
namespace {

constexpr std::string_view kPath = "/v1/traces";

// A URL and where it comes from.
struct Named {
  const char* source;
  std::string_view url;
};

// Where the path begins; npos where there is none.
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
  if (host.find('@') != host.npos) {  // it is not repeated, because it may hold a password
    return InvalidArgument(
        "{} has a user in its URL, which would be seen in the list of processes: let a collector "
        "on "
        "this host add what the receiver asks for",
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

absl::Status AddPairs(std::string_view list, SpanAttributes& attributes) {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    const std::string_view pair = Stripped(list.substr(0, comma));
    list.remove_prefix(comma == list.npos ? list.size() : comma + 1);
    if (pair.empty()) continue;
    const size_t equals = pair.find('=');
    const std::string_view key = Stripped(pair.substr(0, equals));
    const std::optional<std::string> value =
        equals == pair.npos ? std::nullopt : DecodePercent(Stripped(pair.substr(equals + 1)));
    if (key.empty() || !value) {
      return InvalidArgument(
          "OTEL_RESOURCE_ATTRIBUTES: \"{}\" is no key=value with percent-encoded bytes", pair);
    }
    Set(std::string(key), *value, attributes);
  }
  return absl::OkStatus();
}

}  // namespace

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
  RETURN_IF_ERROR(AddPairs(environment.resource_attributes, attributes));
  if (!environment.service_name.empty()) Set("service.name", environment.service_name, attributes);
  return attributes;
}

}  // namespace tandem
