#include "server/openai/trace_headers.h"

#include <string_view>
#include <vector>

#include "absl/strings/match.h"

namespace tandem::openai {
namespace {

std::vector<std::string_view> ValuesOf(const HttpRequest& request, std::string_view name) {
  std::vector<std::string_view> values;
  for (const HttpHeader& header : request.headers) {
    if (absl::EqualsIgnoreCase({header.name.data(), header.name.size()},
                               {name.data(), name.size()})) {
      values.push_back(header.value);
    }
  }
  return values;
}

}  // namespace

std::optional<TraceContext> TraceContextOf(const HttpRequest& request) {
  const std::vector<std::string_view> parents = ValuesOf(request, kTraceparentKey);
  if (parents.empty()) return std::nullopt;
  return ParseTraceContext(parents, ValuesOf(request, kTracestateKey));
}

}  // namespace tandem::openai
