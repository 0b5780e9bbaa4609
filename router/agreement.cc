#include "router/agreement.h"

#include "base/status.h"
#include "router/kv_layouts.h"

namespace tandem {
namespace {

bool IsPair(const WorkerView& prefill, const WorkerView& decode) {
  return prefill.role == v1::WORKER_ROLE_PREFILL && decode.role == v1::WORKER_ROLE_DECODE;
}

absl::Status CheckModel(const WorkerView& joining, const WorkerView& other) {
  if (other.model_fingerprint == joining.model_fingerprint) return absl::OkStatus();
  return FailedPrecondition(
      "model fingerprint {:016x} of {} differs from {:016x} of {}: they loaded different weights; "
      "it can join once the others are leaving",
      joining.model_fingerprint, joining.id.name, other.model_fingerprint, other.id.name);
}

// A prompt is computed with the KV type of prefill workers, what follows with that of decode
// workers, and both with that of unified ones.
absl::Status CheckKvType(const WorkerView& joining, const WorkerView& other) {
  if (other.layout.dtype() == joining.layout.dtype()) return absl::OkStatus();
  return FailedPrecondition(
      "KV type {} of {} worker {} differs from {} of {} worker {}: a request would get other "
      "tokens there; give them the same --kv-dtype",
      joining.layout.dtype(), Name(joining.role), joining.id.name, other.layout.dtype(),
      Name(other.role), other.id.name);
}

}  // namespace

absl::Status CheckCanHandOver(const WorkerView& prefill, const WorkerView& decode) {
  if (prefill.wire_version != decode.wire_version) {
    return FailedPrecondition("KV wire version {} of {} differs from {} of {}: run the same build",
                              prefill.wire_version, prefill.id.name, decode.wire_version,
                              decode.id.name);
  }
  const absl::Status status = CanConvert(prefill.layout, decode.layout);
  if (status.ok()) return status;
  return Annotate(status,
                  fmt::format("KV layout of {} ({}) and of {} ({})", prefill.id.name,
                              ToText(prefill.layout), decode.id.name, ToText(decode.layout)));
}

absl::Status CheckAgrees(const WorkerView& joining, const WorkerView& other) {
  if (other.leaving) return absl::OkStatus();
  RETURN_IF_ERROR(CheckModel(joining, other));
  if (IsPair(joining, other)) return CheckCanHandOver(joining, other);
  if (IsPair(other, joining)) return CheckCanHandOver(other, joining);
  return CheckKvType(joining, other);
}

}  // namespace tandem
