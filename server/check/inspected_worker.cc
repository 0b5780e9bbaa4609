#include "server/check/inspected_worker.h"

#include <utility>

#include "base/status.h"
#include "engine/pool_size.h"
#include "model/transformer/weight_layout.h"
#include "server/admin/metrics_server.h"
#include "server/assembly/addresses.h"
#include "server/assembly/cost_options.h"
#include "server/assembly/engine_options.h"
#include "server/assembly/open_fabric.h"
#include "server/assembly/process_tls.h"
#include "server/check/check_tls.h"

namespace tandem {
namespace {

// Describes the model in the same way as the start of a worker does, but with one thread: the check
// computes nothing, and there may be many workers.
absl::StatusOr<DescribedModel> Describe(WorkerOptions& options) {
  WorkerOptions light = options;
  light.tuning.threads = 1;
  ASSIGN_OR_RETURN(DescribedModel described, DescribeModel(light));
  light.tuning.threads = options.tuning.threads;
  options = std::move(light);
  return described;
}

// A pool on a GPU is sized beside the weights. Activations are not known here, so that it will be
// somewhat smaller.
absl::Status SizeDevicePool(InspectedWorker& worker) {
  EngineOptions& engine = worker.engine;
  const Device& device = *worker.model->backend.device;
  if (engine.num_blocks > 0 || device.is_host()) return absl::OkStatus();
  const int64_t reserved = FabricDeviceBytes(worker.options, engine, device) + worker.weight_bytes;
  ASSIGN_OR_RETURN(engine.num_blocks,
                   BlocksThatFit(engine.layout, engine.device_memory_fraction, reserved, device));
  engine.max_context_tokens =
      static_cast<int32_t>(std::min<int64_t>(engine.max_context_tokens, worker.pool_tokens()));
  return absl::OkStatus();
}

absl::StatusOr<InspectedWorker> Inspect(const WorkerOptions& options) {
  InspectedWorker worker = {.options = options};
  ASSIGN_OR_RETURN(DescribedModel described, Describe(worker.options));
  worker.model = std::move(described.model);
  const Backend& backend = worker.model->backend;
  ASSIGN_OR_RETURN(worker.engine, EngineOptionsFor(worker.options, worker.model->config,
                                                   worker.model->fingerprint, *backend.device));
  if (described.checkpoint != nullptr) {
    ASSIGN_OR_RETURN(const WeightLayout weights,
                     PlanWeights(worker.model->config, *described.checkpoint, *backend.ops,
                                 worker.model->weights_as));
    worker.weight_bytes = weights.packed_bytes;
  }
  RETURN_IF_ERROR(SizeDevicePool(worker));
  worker.memory = MemoryUseOf(worker.engine, *backend.device, worker.weight_bytes,
                              FabricSharedBytes(worker.options));
  return worker;
}

void CheckWorkerTls(const WorkerOptions& options, std::chrono::system_clock::time_point now,
                    Findings& findings) {
  ProcessTls tls;
  if (findings.Check(options.name, tls.OpenForWorker(options.tls))) {
    const NeededIdentity worker = {{IdentityRole::kWorker}, options.name};
    CheckTls(options.tls, {.flags = "--tls", .part = options.name, .identity = worker}, now,
             findings);
  }
  findings.Check(options.name, MetricsTlsFiles(options.metrics_tls, options.tls).status());
  const TlsFiles& kv = options.tuning.transfer.tls;
  if (findings.Check(options.name, kv.Check("--kv-tls"))) {
    const NeededIdentity any_worker = {{IdentityRole::kWorker}};
    CheckTls(kv, {.flags = "--kv-tls", .part = options.name, .identity = any_worker}, now,
             findings);
  }
}

// A transport that flags name must be there; of those that "auto" would take, one is enough.
absl::Status CheckTransports(const InspectedWorker& worker) {
  if (worker.options.role == Role::kUnified) return absl::OkStatus();
  for (const std::string_view transport : kTransports) {
    const absl::Status status =
        MayOffer(transport, worker.options, worker.engine, *worker.model->backend.device);
    // A shared-memory buffer that is too small makes a start fail even if the flag does not name
    // shm.
    const bool ends_start =
        worker.options.tuning.transfer.transport != "auto" || absl::IsInvalidArgument(status);
    if (status.ok() || absl::IsNotFound(status) || !ends_start) continue;
    return Annotate(status, fmt::format("transport {}", transport));
  }
  return absl::OkStatus();
}

}  // namespace

std::string_view RoleText(Role role) {
  if (role == Role::kPrefill) return "prefill";
  return role == Role::kDecode ? "decode" : "unified";
}

std::optional<InspectedWorker> CheckWorker(const WorkerOptions& options,
                                           std::chrono::system_clock::time_point now,
                                           Findings& findings) {
  const std::string& part = options.name;
  findings.Check(part, CheckAddresses(options));
  CheckWorkerTls(options, now, findings);
  absl::StatusOr<InspectedWorker> worker = Inspect(options);
  if (!findings.Check(part, worker.status())) return std::nullopt;
  if (!worker->options.tuning.transfer.tls.enabled()) {
    worker->options.tuning.transfer.tls = options.tls;
  }
  const absl::StatusOr<StartCosts> costs =
      StartCostsFor(worker->options.tuning, *worker->model,
                    ProvenanceOf(worker->options, *worker->model, worker->engine));
  if (findings.Check(part, costs.status())) worker->steps = costs->steps;
  findings.Check(part, CheckTransports(*worker));
  findings.Check(part, CheckFits(worker->memory, HostMemoryLimit()));
  return *std::move(worker);
}

}  // namespace tandem
