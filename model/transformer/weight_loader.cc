#include "model/transformer/weight_loader.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "base/hash.h"
#include "base/status.h"

namespace tandem {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

// The largest scale that a weight may have: its product with any code still fits in a bf16.
constexpr float kMostScale = 1e30f;

float WidenF16(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  const float sign = bits >> 15 != 0 ? -1.0f : 1.0f;
  if (exponent == 31) return mantissa == 0 ? sign * HUGE_VALF : NAN;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
}

// Appends the elements of `tensor` as f32. Its bytes may be unaligned.
void AppendAsF32(const CheckpointTensor& tensor, std::vector<float>& out) {
  const auto size = static_cast<size_t>(SizeOf(tensor.dtype));
  for (size_t at = 0; at < tensor.bytes.size(); at += size) {
    uint32_t bits = 0;
    std::memcpy(&bits, tensor.bytes.data() + at, size);
    switch (tensor.dtype) {
      case DType::kF16:
        out.push_back(WidenF16(static_cast<uint16_t>(bits)));
        break;
      case DType::kBF16:
        out.push_back(std::bit_cast<float>(bits << 16));
        break;
      default:
        out.push_back(std::bit_cast<float>(bits));
        break;
    }
  }
}

}  // namespace

// The data of a tensor, aligned to its elements. Safetensors lets data begin at any byte, but ops
// read aligned elements. Aligned data, which nearly all files have, is read in place; other data is
// copied.
void* WeightLoader::Aligned(const CheckpointTensor& tensor) {
  const auto address = reinterpret_cast<uintptr_t>(tensor.bytes.data());
  if (address % static_cast<uintptr_t>(SizeOf(tensor.dtype)) == 0) {
    return const_cast<std::byte*>(tensor.bytes.data());
  }
  return copies_.emplace_back(tensor.bytes.begin(), tensor.bytes.end()).data();
}

absl::StatusOr<TensorView> WeightLoader::ExpandedScales(const PlacedMatrix& placed) {
  if (placed.scales.empty()) return TensorView();
  const int64_t num_groups = (placed.k + kCodeGroupInputs - 1) / kCodeGroupInputs;
  std::vector<float>& all = widened_.emplace_back();
  all.reserve(static_cast<size_t>(placed.n * num_groups));
  for (size_t i = 0; i < placed.sources.size(); ++i) {
    const PlacedScales& scales = placed.scales[i];
    std::vector<float> values;
    AppendAsF32(scales.tensor, values);
    for (size_t at = 0; at < values.size(); ++at) {
      if (values[at] >= 0 && values[at] <= kMostScale) continue;
      return InvalidArgument("tensor {} has {} at place {}, must be from 0 to {}", scales.name,
                             values[at], at, kMostScale);
    }
    const int64_t columns = (placed.k + scales.block_inputs - 1) / scales.block_inputs;
    for (int64_t row = 0; row < placed.sources[i].shape[0]; ++row) {
      const float* of_row = values.data() + row / scales.block_outputs * columns;
      for (int64_t group = 0; group < num_groups; ++group) {
        all.push_back(of_row[group * kCodeGroupInputs / scales.block_inputs]);
      }
    }
  }
  return TensorView(all.data(), DType::kF32, {placed.n, num_groups});
}

absl::Status WeightLoader::Load(const PlacedMatrix& placed) {
  if (placed.sources.empty()) return absl::OkStatus();
  std::vector<TensorView> views;
  for (const CheckpointTensor& source : placed.sources) {
    views.emplace_back(Aligned(source), source.dtype,
                       std::initializer_list<int64_t>{source.shape[0], source.shape[1]});
  }
  ASSIGN_OR_RETURN(const TensorView scales, ExpandedScales(placed));
  RETURN_IF_ERROR(
      Annotate(parts_.ops.PackWeight(parts_.stream, placed.In(parts_.memory), views, scales),
               "tensor " + placed.name));
  Done(placed.sources);
  for (const PlacedScales& of_source : placed.scales) Done({&of_source.tensor, 1});
  return absl::OkStatus();
}

absl::Status WeightLoader::Load(const PlacedVector& placed) {
  if (placed.sources.empty()) return absl::OkStatus();
  std::vector<float>& values = widened_.emplace_back();
  values.reserve(placed.size);
  for (const CheckpointTensor& source : placed.sources) AppendAsF32(source, values);
  const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
  RETURN_IF_ERROR(parts_.stream.Copy({parts_.memory + placed.offset, bytes.size()}, bytes));
  Done(placed.sources);
  return absl::OkStatus();
}

absl::Status WeightLoader::Load(const LayerLayout& placed) {
  RETURN_IF_ERROR(Load(placed.attention_norm));
  RETURN_IF_ERROR(Load(placed.qkv));
  RETURN_IF_ERROR(Load(placed.qkv_bias));
  RETURN_IF_ERROR(Load(placed.q_norm));
  RETURN_IF_ERROR(Load(placed.k_norm));
  RETURN_IF_ERROR(Load(placed.output));
  RETURN_IF_ERROR(Load(placed.output_bias));
  RETURN_IF_ERROR(Load(placed.mlp_norm));
  RETURN_IF_ERROR(Load(placed.gate_up));
  return Load(placed.down);
}

absl::Status WeightLoader::Await() {
  RETURN_IF_ERROR(parts_.stream.Synchronize());
  copies_.clear();
  widened_.clear();
  return absl::OkStatus();
}

void WeightLoader::Done(std::span<const CheckpointTensor> sources) {
  for (const CheckpointTensor& source : sources) {
    hash_ = Hash64(source.bytes, hash_);  // here, because these bytes are in memory now
    parts_.checkpoint.Forget(source);
    loaded_bytes_ += source.bytes.size();
  }
  if (parts_.progress) parts_.progress(loaded_bytes_, parts_.layout.source_bytes);
}

}  // namespace tandem
