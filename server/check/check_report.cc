#include "server/check/check_report.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;
using Text = std::back_insert_iterator<std::string>;

double ToGigabytes(int64_t bytes) { return static_cast<double>(bytes) / 1e9; }

// The widths of the columns of names.
struct Widths {
  size_t worker = std::string_view("WORKER").size();
  size_t device = std::string_view("DEVICE").size();
};

Widths WidthsFor(const std::vector<InspectedWorker>& workers) {
  Widths widths;
  for (const InspectedWorker& worker : workers) {
    widths.worker = std::max(widths.worker, worker.options.name.size());
    widths.device = std::max(widths.device, worker.model->device_name.size());
  }
  return widths;
}

void AddWorkerRow(const InspectedWorker& worker, const Widths& widths, std::string& text) {
  const HostMemoryUse& use = worker.memory;
  fmt::format_to(
      Text(text),
      "{:<{}}  {:<{}}{:>9.2f}{:>9.2f}{:>11.2f}{:>11.2f}{:>8.2f}{:>12}  {} of {} tokens\n",
      worker.options.name, widths.worker, worker.model->device_name, widths.device,
      ToGigabytes(use.weights), ToGigabytes(use.kv_pool), ToGigabytes(use.host_tier),
      ToGigabytes(use.transfers), ToGigabytes(use.sum()), worker.pool_tokens(),
      worker.longest_sequences(), worker.engine.max_context_tokens);
  if (worker.model->backend.device->is_host()) return;
  fmt::format_to(Text(text),
                 "  on {}: weights {:.2f} GB, KV pool at most {:.2f} GB (less what activations "
                 "take)\n",
                 worker.model->device_name, ToGigabytes(worker.weight_bytes),
                 ToGigabytes(worker.engine.num_blocks * worker.engine.layout.BlockBytes()));
}

void AddMemory(const CheckReport& report, std::string& text) {
  if (report.workers.empty()) return;
  const Widths widths = WidthsFor(report.workers);
  fmt::format_to(Text(text),
                 "Memory of this host in GB (limit {:.2f}), and what the KV pools hold:\n",
                 ToGigabytes(report.memory_limit));
  fmt::format_to(Text(text), "{:<{}}  {:<{}}{:>9}{:>9}{:>11}{:>11}{:>8}{:>12}  {}\n", "WORKER",
                 widths.worker, "DEVICE", widths.device, "WEIGHTS", "KV POOL", "HOST TIER",
                 "TRANSFERS", "SUM", "KV TOKENS", "LONGEST CONTEXTS");
  for (const InspectedWorker& worker : report.workers) AddWorkerRow(worker, widths, text);
}

bool IsAlike(const PlannedLink& a, const PlannedLink& b) {
  return a.transport == b.transport &&
         std::ranges::equal(a.left_out, b.left_out, [](const auto& x, const auto& y) {
           return x.transport == y.transport && x.reason == y.reason;
         });
}

void AddLink(const PlannedLink& link, const std::string& who, std::string& text) {
  fmt::format_to(Text(text), "{}: {}\n", who, link.transport.empty() ? "no link" : link.transport);
  for (const PlannedLink::Left& left : link.left_out) {
    fmt::format_to(Text(text), "  not {}: {}\n", left.transport, left.reason);
  }
}

void AddTopology(const CheckReport& report, std::string& text) {
  for (const InspectedWorker& worker : report.workers) {
    fmt::format_to(Text(text), "{} registers with {}\n", worker.options.name,
                   fmt::join(worker.options.routers, ", "));
  }
  const std::vector<PlannedLink>& links = report.links;
  const bool all_alike = std::ranges::all_of(
      links, [&](const PlannedLink& one) { return IsAlike(one, links.front()); });
  if (links.size() > 1 && all_alike) {
    AddLink(links.front(), "KV from each prefill worker to each decode worker", text);
    return;
  }
  for (const PlannedLink& link : links) {
    AddLink(link, fmt::format("KV from {} to {}", link.from, link.to), text);
  }
}

void AddAdviceText(const CheckReport& report, std::string& text) {
  if (!report.advice) {
    fmt::format_to(Text(text), "How many workers of which role: {}\n", report.no_advice);
    return;
  }
  fmt::format_to(Text(text), "How many workers of which role, by {}:\n", report.parameters);
  for (const std::string& line : report.advice->arithmetic) {
    fmt::format_to(Text(text), "  {}\n", line);
  }
  fmt::format_to(Text(text), "  {}\n", report.advice->conclusion);
}

size_t CountOf(const CheckReport& report, Severity severity) {
  return static_cast<size_t>(
      std::ranges::count(report.findings.all(), severity, &Finding::severity));
}

Json WorkerJson(const InspectedWorker& worker) {
  const HostMemoryUse& use = worker.memory;
  return {{"name", worker.options.name},
          {"role", RoleText(worker.options.role)},
          {"device", worker.model->device_name},
          {"routers", worker.options.routers},
          {"host_memory_bytes",
           {{"weights", use.weights},
            {"kv_pool", use.kv_pool},
            {"host_tier", use.host_tier},
            {"transfers", use.transfers},
            {"sum", use.sum()}}},
          {"weight_bytes", worker.weight_bytes},
          {"kv_pool_bytes", worker.engine.num_blocks * worker.engine.layout.BlockBytes()},
          {"kv_tokens", worker.pool_tokens()},
          {"max_context_tokens", worker.engine.max_context_tokens},
          {"longest_contexts", worker.longest_sequences()}};
}

Json LinkJson(const PlannedLink& link) {
  Json left_out = Json::array();
  for (const PlannedLink::Left& left : link.left_out) {
    left_out.push_back({{"transport", left.transport}, {"reason", left.reason}});
  }
  return {
      {"from", link.from}, {"to", link.to}, {"transport", link.transport}, {"left_out", left_out}};
}

Json DeploymentJson(const std::optional<Deployment>& made) {
  if (!made) return nullptr;
  return {{"prefill", made->prefill},
          {"decode", made->decode},
          {"unified", made->unified},
          {"ttft_ms", made->ttft_ms},
          {"tpot_ms", made->tpot_ms}};
}

Json AdviceJson(const CheckReport& report) {
  if (!report.advice) return {{"missing", report.no_advice}};
  return {{"parameters", report.parameters},
          {"disaggregated", DeploymentJson(report.advice->disaggregated)},
          {"unified", DeploymentJson(report.advice->unified)},
          {"arithmetic", report.advice->arithmetic},
          {"conclusion", report.advice->conclusion}};
}

}  // namespace

std::string CheckText(const CheckReport& report) {
  std::string text;
  AddMemory(report, text);
  AddTopology(report, text);
  AddAdviceText(report, text);
  for (const Finding& one : report.findings.all()) {
    fmt::format_to(Text(text), "{}: {}{}{}\n", Name(one.severity), one.part,
                   one.part.empty() ? "" : ": ", one.text);
  }
  fmt::format_to(Text(text), "{}: {} errors, {} warnings\n",
                 report.findings.has_errors() ? "not in order" : "in order",
                 CountOf(report, Severity::kError), CountOf(report, Severity::kWarning));
  return text;
}

std::string CheckJson(const CheckReport& report) {
  Json findings = Json::array();
  for (const Finding& one : report.findings.all()) {
    findings.push_back({{"severity", Name(one.severity)}, {"part", one.part}, {"text", one.text}});
  }
  Json workers = Json::array();
  for (const InspectedWorker& worker : report.workers) workers.push_back(WorkerJson(worker));
  Json links = Json::array();
  for (const PlannedLink& link : report.links) links.push_back(LinkJson(link));
  const Json all = {{"ok", !report.findings.has_errors()},
                    {"findings", findings},
                    {"host_memory_limit_bytes", report.memory_limit},
                    {"workers", workers},
                    {"links", links},
                    {"advice", AdviceJson(report)}};
  return JsonText(all, 2) + "\n";
}

}  // namespace tandem
