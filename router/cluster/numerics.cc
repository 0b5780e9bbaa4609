#include "router/cluster/numerics.h"

#include "base/status.h"

namespace tandem {
namespace {

std::string ToText(const Numerics& numerics) {
  return fmt::format("model {:016x} with KV of {} on {}", numerics.model_fingerprint,
                     numerics.kv_dtype, numerics.device_kind);
}

absl::Status MustEqual(const WorkerView& worker, std::string_view part, const Numerics& begun) {
  const Numerics is = NumericsOf(worker);
  if (is == begun) return absl::OkStatus();
  return FailedPrecondition("{} worker {} has {}, and the {} was begun by {}", Name(worker.role),
                            worker.id.name, ToText(is), part, ToText(begun));
}

}  // namespace

Numerics NumericsOf(const WorkerView& worker) {
  return {.model_fingerprint = worker.model_fingerprint,
          .kv_dtype = worker.layout.dtype(),
          .device_kind = worker.device.substr(0, worker.device.find(':'))};
}

absl::Status CheckGoesOn(const WorkerView& worker, const Begun& begun) {
  if (worker.role != v1::WORKER_ROLE_DECODE) {
    RETURN_IF_ERROR(MustEqual(worker, "prompt", begun.prompt));
  }
  if (worker.role != v1::WORKER_ROLE_PREFILL) {
    RETURN_IF_ERROR(MustEqual(worker, "output", begun.output));
  }
  return absl::OkStatus();
}

}  // namespace tandem
