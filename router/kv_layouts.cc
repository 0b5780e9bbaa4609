#include "router/kv_layouts.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "base/status.h"

namespace tandem {
namespace {

struct Widening {
  std::string_view from;
  std::string_view to;
};

// Every value of `from` is one of `to`.
constexpr Widening kExact[] = {
    {"f8e4m3", "bf16"}, {"f8e4m3", "f16"}, {"f8e4m3", "f32"}, {"bf16", "f32"}, {"f16", "f32"}};

bool IsExact(std::string_view from, std::string_view to) {
  return from == to || std::any_of(std::begin(kExact), std::end(kExact), [&](const Widening& pair) {
           return pair.from == from && pair.to == to;
         });
}

absl::Status MustEqual(std::string_view field, int32_t from, int32_t to) {
  if (from == to) return absl::OkStatus();
  return FailedPrecondition("{} is {} at the sender and {} at the receiver", field, from, to);
}

}  // namespace

absl::Status CanConvert(const v1::KvLayout& from, const v1::KvLayout& to) {
  RETURN_IF_ERROR(MustEqual("num_layers", from.num_layers(), to.num_layers()));
  RETURN_IF_ERROR(MustEqual("num_kv_heads", from.num_kv_heads(), to.num_kv_heads()));
  RETURN_IF_ERROR(MustEqual("head_dim", from.head_dim(), to.head_dim()));
  if (IsExact(from.dtype(), to.dtype())) return absl::OkStatus();
  return FailedPrecondition(
      "KV of {} cannot be turned into {} without loss: give the sender and the receiver the same "
      "--kv-dtype, or the receiver a wider one",
      from.dtype(), to.dtype());
}

std::string ToText(const v1::KvLayout& layout) {
  return fmt::format("{} layers, {} KV heads of {}, {} tokens per block, {}", layout.num_layers(),
                     layout.num_kv_heads(), layout.head_dim(), layout.block_tokens(),
                     layout.dtype());
}

}  // namespace tandem
