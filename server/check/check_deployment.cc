#include "server/check/check_deployment.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/status.h"
#include "fmt/format.h"
#include "server/assembly/cost_options.h"
#include "server/assembly/simulated_worker.h"
#include "server/check/check_router.h"

namespace tandem {
namespace {

void AddPort(std::vector<WantedPort>& ports, const std::string& part, const std::string& flag,
             const std::string& host, std::optional<uint16_t> port) {
  ports.push_back({.part = part, .flag = flag, .host = host, .port = port.value_or(0)});
}

std::vector<WantedPort> PortsOf(const CheckRequest& request) {
  std::vector<WantedPort> ports;
  if (const auto& router = request.router) {
    AddPort(ports, "router", "--port", router->host, router->port);
    AddPort(ports, "router", "--http-port", router->host, router->http_port);
    AddPort(ports, "router", "--metrics-port", router->host, router->metrics_port);
  }
  for (const WorkerOptions& worker : request.workers) {
    AddPort(ports, worker.name, "--port", worker.host, worker.port);
    AddPort(ports, worker.name, "--data-port", worker.host, worker.data_port);
    AddPort(ports, worker.name, "--metrics-port", worker.host, worker.metrics_port);
  }
  return ports;
}

// Whether all workers together fit into the memory of the host: each worker compares its own use
// with the limit and does not know of the other workers.
absl::Status CheckTogether(const std::vector<InspectedWorker>& workers, int64_t limit) {
  int64_t sum = 0;
  for (const InspectedWorker& worker : workers) sum += worker.memory.sum();
  if (workers.size() < 2 || sum <= limit) return absl::OkStatus();
  return ResourceExhausted(
      "the {} workers together would take {:.2f} GB of this host's memory, of which they may use "
      "{:.2f} GB: start fewer, or lower --kv-bytes, --kv-tokens, --host-kv-bytes or "
      "--kv-buffer-bytes",
      workers.size(), static_cast<double>(sum) / 1e9, static_cast<double>(limit) / 1e9);
}

// The measured parameters of the latency model, for steps and transfers.
struct Parameters {
  std::string source;
  StepCoefficients steps;
  std::vector<NamedLink> links;
  int32_t num_layers = 0;
  int64_t kv_bytes_per_token = 0;
};

absl::StatusOr<Parameters> ParametersOf(const InspectedWorker& worker) {
  const WorkerTuning& tuning = worker.options.tuning;
  const KvLayout& layout = worker.engine.layout;
  Parameters found = {.steps = *worker.steps,
                      .num_layers = layout.num_layers,
                      .kv_bytes_per_token = layout.BytesPerToken()};
  if (const std::optional<std::string> file = SimulatedFile(tuning.device)) {
    ASSIGN_OR_RETURN(const SimulatedDevice device, LoadSimulatedDevice(*file));
    found.source = *file;
    found.links = device.parameters.links;
    found.num_layers = device.kv.num_layers;
    found.kv_bytes_per_token = device.BytesPerToken();
  }
  if (!tuning.cost_model.empty()) {
    ASSIGN_OR_RETURN(const CostParameters file, LoadCostParameters(tuning.cost_model));
    found.source = tuning.cost_model;
    if (!file.links.empty()) found.links = file.links;
  }
  return found;
}

// A file that lies here and that no flag names must have been measured with this model and machine.
absl::StatusOr<Parameters> FoundParameters(const std::string& path, const InspectedWorker& worker) {
  if (const std::string& named = worker.options.tuning.cost_model; !named.empty()) {
    return FailedPrecondition("--cost-model {} cannot be used, as the error about it says", named);
  }
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return NotFound("nothing is measured: --cost-model names no file, and there is no {} here",
                    path);
  }
  ASSIGN_OR_RETURN(CostParameters file, LoadCostParameters(path));
  RETURN_IF_ERROR(Annotate(
      CheckProvenance(file.provenance, ProvenanceOf(worker.options, *worker.model, worker.engine)),
      path));
  return Parameters{.source = path,
                    .steps = std::move(file.steps),
                    .links = std::move(file.links),
                    .num_layers = worker.engine.layout.num_layers,
                    .kv_bytes_per_token = worker.engine.layout.BytesPerToken()};
}

std::optional<LinkModel> LinkFor(const std::vector<NamedLink>& measured,
                                 const std::vector<PlannedLink>& planned) {
  for (const NamedLink& link : measured) {
    if (!planned.empty() && link.name == planned.front().transport) return link.model;
  }
  if (measured.empty()) return std::nullopt;
  return measured.front().model;
}

// The value of --model for a command that the report suggests; "DIR" where it is not known.
std::string ModelOf(const CheckRequest& request) {
  const std::string model = request.workers.empty() ? "" : request.workers.front().model_dir;
  return model.empty() ? "DIR" : model;
}

absl::Status AddAdvice(const CheckRequest& request, CheckReport& report) {
  const auto with_steps =
      std::ranges::find_if(report.workers, [](const auto& one) { return one.steps.has_value(); });
  const bool has_own = with_steps != report.workers.end();
  const InspectedWorker& worker = has_own ? *with_steps : report.workers.front();
  ASSIGN_OR_RETURN(
      const Parameters parameters,
      has_own ? ParametersOf(worker) : FoundParameters(request.found_parameters, worker));
  WorkerModel model = {.link = LinkFor(parameters.links, report.links),
                       .num_layers = parameters.num_layers,
                       .kv_bytes_per_token = parameters.kv_bytes_per_token,
                       .pool_tokens = worker.pool_tokens(),
                       .max_step_tokens = worker.engine.scheduler.max_step_tokens,
                       .max_sequences = worker.engine.scheduler.max_sequences};
  ASSIGN_OR_RETURN(model.steps, StepModel::Create(parameters.steps));
  const Workload& workload = request.workload;
  const int64_t context = int64_t{workload.input_tokens} + workload.output_tokens;
  if (context > worker.engine.max_context_tokens) {
    return InvalidArgument(
        "--input-len {} and --output-len {} make a context of {} tokens, and workers take {}: ask "
        "for less, or raise --max-context or the KV pool",
        workload.input_tokens, workload.output_tokens, context, worker.engine.max_context_tokens);
  }
  report.parameters = parameters.source;
  report.advice = AdviseOn(workload, model);
  return absl::OkStatus();
}

}  // namespace

CheckReport CheckDeployment(const CheckRequest& request,
                            std::chrono::system_clock::time_point now) {
  CheckReport report;
  report.memory_limit = HostMemoryLimit();
  if (request.router) CheckRouter(*request.router, now, report.findings);
  for (const WorkerOptions& options : request.workers) {
    std::optional<InspectedWorker> worker = CheckWorker(options, now, report.findings);
    if (worker) report.workers.push_back(*std::move(worker));
  }
  CheckPorts(PortsOf(request), request.ports, report.findings);
  report.findings.Check("", CheckTogether(report.workers, report.memory_limit));
  report.links = PlanLinks(report.workers, report.findings);
  if (report.workers.empty()) {
    report.no_advice = "no worker can be looked at";
  } else if (const absl::Status status = AddAdvice(request, report); !status.ok()) {
    report.no_advice = fmt::format(
        "{}. To measure this machine, run `tandem profile --model {}` while it is idle and give "
        "the "
        "file as --cost-model.",
        std::string(status.message()), ModelOf(request));
  }
  return report;
}

}  // namespace tandem
