#include "router/cluster/agreement.h"

#include <string>

#include "absl/strings/cord.h"
#include "base/kv_shape.h"
#include "base/status.h"

namespace tandem {
namespace {

// The key of a status payload that is written to the log with the status and never sent to the
// caller.
constexpr char kLogOnly[] = "tandem/log-only";

KvShape ShapeOf(const v1::KvLayout& layout) {
  return {layout.num_layers(), layout.num_kv_heads(), layout.head_dim(), layout.dtype()};
}

// Describes a layout, as in "24 layers, 8 KV heads of 64, 16 tokens per block, bf16".
std::string ToText(const v1::KvLayout& layout) {
  return fmt::format("{} layers, {} KV heads of {}, {} tokens per block, {}", layout.num_layers(),
                     layout.num_kv_heads(), layout.head_dim(), layout.block_tokens(),
                     layout.dtype());
}

bool IsPair(const WorkerRef& prefill, const WorkerRef& decode) {
  return prefill.role == v1::WORKER_ROLE_PREFILL && decode.role == v1::WORKER_ROLE_DECODE;
}

absl::Status CheckModel(const WorkerView& joining, const WorkerView& other) {
  if (other.info->model_fingerprint != joining.info->model_fingerprint) {
    absl::Status status = FailedPrecondition(
        "model fingerprint {:016x} of {} differs from that of {}: they loaded different weights, "
        "or keep them differently (--weights); it can join once the others are leaving; the "
        "router's log has both",
        joining.info->model_fingerprint, joining.id.name, other.id.name);
    status.SetPayload(kLogOnly,
                      absl::Cord(fmt::format("the fingerprint of {} is {:016x}", other.id.name,
                                             other.info->model_fingerprint)));
    return status;
  }
  const uint64_t mine = joining.load->weights_hash();
  const uint64_t others = other.load->weights_hash();
  if (mine == 0 || others == 0 || mine == others) return absl::OkStatus();
  return FailedPrecondition(
      "the weights that {} loaded differ from those of {}: compare the model files of both (was a "
      "copy cut short, is a disk bad?), replace the wrong ones and start that worker again",
      joining.id.name, other.id.name);
}

// Workers that may compute the same part of a request must keep KV in the same type: the prompt is
// computed with the type of the prefill workers, the output with that of the decode workers, and
// both with that of the unified ones.
absl::Status CheckKvType(const WorkerRef& joining, const WorkerRef& other) {
  if (other.info->layout.dtype() == joining.info->layout.dtype()) return absl::OkStatus();
  return FailedPrecondition(
      "KV type {} of {} worker {} differs from {} of {} worker {}: a request would get other "
      "tokens there; give them the same --kv-dtype",
      joining.info->layout.dtype(), Name(joining.role), joining.id.name, other.info->layout.dtype(),
      Name(other.role), other.id.name);
}

}  // namespace

absl::Status CheckCanHandOver(const WorkerRef& prefill, const WorkerRef& decode) {
  if (prefill.info->wire_version != decode.info->wire_version) {
    return FailedPrecondition("KV wire version {} of {} differs from {} of {}: run the same build",
                              prefill.info->wire_version, prefill.id.name,
                              decode.info->wire_version, decode.id.name);
  }
  const absl::Status status =
      CanConvert(ShapeOf(prefill.info->layout), ShapeOf(decode.info->layout));
  if (status.ok()) return status;
  return Annotate(status, fmt::format("KV layout of {} ({}) and of {} ({})", prefill.id.name,
                                      ToText(prefill.info->layout), decode.id.name,
                                      ToText(decode.info->layout)));
}

absl::Status CheckAgrees(const WorkerView& joining, const WorkerView& other) {
  if (other.leaving) return absl::OkStatus();
  RETURN_IF_ERROR(CheckModel(joining, other));
  if (IsPair(joining, other)) return CheckCanHandOver(joining, other);
  if (IsPair(other, joining)) return CheckCanHandOver(other, joining);
  return CheckKvType(joining, other);
}

}  // namespace tandem
