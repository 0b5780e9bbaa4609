#include "base/kv_shape.h"

#include <optional>

#include "base/dtype.h"
#include "base/status.h"

namespace tandem {
namespace {

absl::Status SameField(std::string_view field, int32_t from, int32_t to) {
  if (from == to) return absl::OkStatus();
  return FailedPrecondition(
      "KV with {}={} cannot be kept with {}={}: serve the same model on both workers", field, from,
      field, to);
}

bool CanBecome(std::string_view from, std::string_view to) {
  if (from == to) return true;
  const std::optional<DType> before = DTypeFromName(from);
  const std::optional<DType> after = DTypeFromName(to);
  return before && after && (Widens(*before, *after) || Quantises(*before, *after));
}

}  // namespace

absl::Status CanConvert(const KvShape& from, const KvShape& to) {
  RETURN_IF_ERROR(SameField("num_layers", from.num_layers, to.num_layers));
  RETURN_IF_ERROR(SameField("num_kv_heads", from.num_kv_heads, to.num_kv_heads));
  RETURN_IF_ERROR(SameField("head_dim", from.head_dim, to.head_dim));
  if (CanBecome(from.dtype, to.dtype)) return absl::OkStatus();
  return FailedPrecondition(
      "KV with dtype={} cannot be kept with dtype={} without changing its values: give both "
      "workers the same --kv-dtype{}",
      from.dtype, to.dtype,
      CanBecome(from.dtype, Name(DType::kF32)) ? ", or the decode worker f32" : "");
}

}  // namespace tandem
