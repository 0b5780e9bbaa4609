#include "server/check/topology.h"

#include <utility>

#include "base/status.h"
#include "fmt/format.h"
#include "server/assembly/open_fabric.h"

namespace tandem {
namespace {

absl::Status OfferOf(std::string_view transport, const InspectedWorker& worker) {
  return MayOffer(transport, worker.options, worker.engine, *worker.model->backend.device);
}

PlannedLink LinkBetween(const InspectedWorker& from, const InspectedWorker& to) {
  PlannedLink link = {
      .from = from.options.name, .to = to.options.name, .transport = {}, .left_out = {}};
  for (const std::string_view transport : kTransports) {
    const InspectedWorker* without = &from;
    absl::Status status = OfferOf(transport, from);
    if (status.ok()) {
      without = &to;
      status = OfferOf(transport, to);
    }
    if (status.ok()) {
      link.transport = std::string(transport);
      break;
    }
    link.left_out.push_back(
        {std::string(transport),
         fmt::format("{}: {}", RoleText(without->options.role), std::string(status.message()))});
  }
  return link;
}

}  // namespace

std::vector<PlannedLink> PlanLinks(const std::vector<InspectedWorker>& workers,
                                   Findings& findings) {
  std::vector<PlannedLink> links;
  for (const InspectedWorker& from : workers) {
    if (from.options.role != Role::kPrefill) continue;
    for (const InspectedWorker& to : workers) {
      if (to.options.role != Role::kDecode) continue;
      links.push_back(LinkBetween(from, to));
      if (!links.back().transport.empty()) continue;
      findings.Add(Severity::kError, from.options.name,
                   fmt::format("KV cannot go to {}: --kv-transport={} here and --kv-transport={} "
                               "there have nothing in common that both may use; tcp always is",
                               to.options.name, from.options.tuning.transfer.transport,
                               to.options.tuning.transfer.transport));
    }
  }
  return links;
}

}  // namespace tandem
