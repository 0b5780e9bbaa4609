#include "kernels/validate_checks.h"

#include <cmath>
#include <string>
#include <utility>

#include "base/status.h"
#include "fmt/format.h"

namespace tandem::validate {
namespace {

std::string Describe(DType dtype, std::span<const int64_t> shape) {
  std::string text = std::string(Name(dtype)) + "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += i == 0 ? "" : ", ";
    text += shape[i] == kAny ? "*" : fmt::format("{}", shape[i]);
  }
  return text + "]";
}

struct ByteRange {
  const std::byte* begin;
  const std::byte* end;
};

ByteRange Bytes(const TensorView& tensor) {
  const auto* begin = static_cast<const std::byte*>(tensor.data);
  if (tensor.rows() == 0) return {begin, begin};
  const int64_t last = (tensor.rows() - 1) * tensor.row_stride + tensor.RowElements();
  return {begin, begin + last * SizeOf(tensor.dtype)};
}

}  // namespace

bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

absl::Status CheckTensor(std::string_view name, const TensorView& tensor, DType dtype,
                         std::initializer_list<int64_t> shape) {
  const std::span<const int64_t> wanted(shape.begin(), shape.size());
  bool same = tensor.dtype == dtype && tensor.rank == static_cast<int>(shape.size());
  int64_t elements = 1;
  for (int i = 0; same && i < tensor.rank; ++i) {
    same = tensor.shape[i] >= 0 && (wanted[i] == kAny || wanted[i] == tensor.shape[i]);
    elements *= tensor.shape[i];
  }
  if (!same) {
    const std::span<const int64_t> found(tensor.shape.data(), tensor.rank);
    return InvalidArgument("{} is {}, must be {}", name, Describe(tensor.dtype, found),
                           Describe(dtype, wanted));
  }
  if (elements > 0 && !tensor.present()) return InvalidArgument("{} has no data", name);
  if (tensor.rows() > 1 && tensor.row_stride < tensor.RowElements()) {
    return InvalidArgument("{} has a row stride of {}, must be at least {}", name,
                           tensor.row_stride, tensor.RowElements());
  }
  return absl::OkStatus();
}

absl::Status CheckActivation(std::string_view name, const TensorView& tensor,
                             ActivationTypeOf activation_type,
                             std::initializer_list<int64_t> shape) {
  if (tensor.dtype != DType::kF32 &&
      (!IsFloat(tensor.dtype) || activation_type(tensor.dtype) != tensor.dtype)) {
    return InvalidArgument("{} is {}, which this device does not compute in; f32 it does", name,
                           Name(tensor.dtype));
  }
  return CheckTensor(name, tensor, tensor.dtype, shape);
}

bool Disjoint(const TensorView& a, const TensorView& b) {
  const ByteRange x = Bytes(a);
  const ByteRange y = Bytes(b);
  if (x.begin == x.end || y.begin == y.end || x.end <= y.begin || y.end <= x.begin) return true;
  const int64_t stride = a.row_stride * SizeOf(a.dtype);
  if (stride != b.row_stride * SizeOf(b.dtype)) return false;
  const int64_t apart = y.begin - x.begin;
  const int64_t offset = (apart % stride + stride) % stride;
  return offset >= a.RowElements() * SizeOf(a.dtype) &&
         offset + b.RowElements() * SizeOf(b.dtype) <= stride;
}

absl::Status CheckPool(const KvPoolView& pool) {
  if (pool.data == nullptr) return InvalidArgument("pool has no data");
  if (!IsKvType(pool.dtype)) {
    return InvalidArgument("pool is of {}, must be {}", Name(pool.dtype), kKvTypeNames);
  }
  for (const auto& [name, scale] :
       {std::pair("k_scale", pool.k_scale), {"v_scale", pool.v_scale}}) {
    const bool right =
        pool.dtype == DType::kF8E4M3 ? scale > 0 && std::isfinite(scale) : scale == 1;
    if (!right) {
      return InvalidArgument("pool has a {} of {}, must be {}", name, scale,
                             pool.dtype == DType::kF8E4M3 ? "finite and positive" : "1");
    }
  }
  if (pool.num_layers <= 0 || pool.num_blocks <= 0 || pool.num_kv_heads <= 0) {
    return InvalidArgument("pool has {} layers, {} blocks and {} KV heads, must be positive",
                           pool.num_layers, pool.num_blocks, pool.num_kv_heads);
  }
  const int32_t tokens = pool.block_tokens;
  if (tokens < 8 || tokens > 256 || (tokens & (tokens - 1)) != 0) {
    return InvalidArgument("pool has block_tokens {}, must be a power of two from 8 to 256",
                           tokens);
  }
  if (pool.head_dim <= 0 || pool.head_dim > 256 || pool.head_dim % 8 != 0) {
    return InvalidArgument("pool has head_dim {}, must be a multiple of 8 up to 256",
                           pool.head_dim);
  }
  if (IsQuantisedKv(pool.dtype) && pool.head_dim % kKvGroupChannels != 0) {
    return InvalidArgument("pool of {} has head_dim {}, must be a multiple of {}", Name(pool.dtype),
                           pool.head_dim, kKvGroupChannels);
  }
  return absl::OkStatus();
}

absl::Status CheckIndex(std::string_view name, int64_t value, int64_t count) {
  if (value >= 0 && value < count) return absl::OkStatus();
  return InvalidArgument("{} is {}, must be in [0, {})", name, value, count);
}

absl::Status CheckIds(std::string_view name, std::span<const int32_t> ids, int64_t count) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= count) {
      return InvalidArgument("{}[{}] is {}, must be in [0, {})", name, i, ids[i], count);
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::validate
