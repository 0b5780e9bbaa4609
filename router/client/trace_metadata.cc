#include "router/client/trace_metadata.h"

#include <string_view>
#include <vector>

namespace tandem {
namespace {

std::vector<std::string_view> ValuesOf(const grpc::ServerContextBase& context, const char* key) {
  std::vector<std::string_view> values;
  const auto [first, last] = context.client_metadata().equal_range(key);
  for (auto it = first; it != last; ++it) values.emplace_back(it->second.data(), it->second.size());
  return values;
}

}  // namespace

void SendTraceContext(const TraceContext& trace, grpc::ClientContext& context) {
  context.AddMetadata(kTraceparentKey, ToTraceparent(trace));
  if (!trace.tracestate.empty()) context.AddMetadata(kTracestateKey, trace.tracestate);
}

std::optional<TraceContext> TraceContextOf(const grpc::ServerContextBase& context) {
  const std::vector<std::string_view> parents = ValuesOf(context, kTraceparentKey);
  if (parents.empty()) return std::nullopt;
  return ParseTraceContext(parents, ValuesOf(context, kTracestateKey));
}

}  // namespace tandem
