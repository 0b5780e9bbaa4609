#include "router/cluster/numerics.h"

#include "base/status.h"

namespace tandem {
namespace {

std::string ToText(const Numerics& numerics) {
  return fmt::format("model {:016x} with KV of {} on {}", numerics.model_fingerprint,
                     numerics.kv_dtype, numerics.device_kind);
}

absl::Status MustEqual(const WorkerRef& worker, std::string_view part, const Numerics& begun) {
  const Numerics is = NumericsOf(worker);
  if (is == begun) return absl::OkStatus();
  return FailedPrecondition("{} worker {} has {}, and the {} was begun by {}", Name(worker.role),
                            worker.id.name, ToText(is), part, ToText(begun));
}

}  // namespace

Numerics NumericsOf(const WorkerRef& worker) {
  const WorkerInfo& info = *worker.info;
  return {.model_fingerprint = info.model_fingerprint,
          .kv_dtype = info.layout.dtype(),
          .device_kind = info.device.substr(0, info.device.find(':'))};
}

absl::Status CheckContinues(const WorkerRef& worker, const Begun& begun) {
  if (worker.role != v1::WORKER_ROLE_DECODE) {
    RETURN_IF_ERROR(MustEqual(worker, "prompt", begun.prompt));
  }
  if (worker.role != v1::WORKER_ROLE_PREFILL) {
    RETURN_IF_ERROR(MustEqual(worker, "output", begun.output));
  }
  return absl::OkStatus();
}

}  // namespace tandem
