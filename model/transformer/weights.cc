#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/status.h"
#include "model/transformer/weight_layout.h"
#include "model/transformer/weight_store.h"

namespace tandem {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

float WidenF16(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  const float sign = bits >> 15 != 0 ? -1.0f : 1.0f;
  if (exponent == 31) return mantissa == 0 ? sign * HUGE_VALF : NAN;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
}

// Appends the elements of `tensor` as f32. Its bytes may lie at any address.
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

// All weights in one buffer of the device, from load to exit.
class ResidentWeights final : public WeightStore {
 public:
  ResidentWeights(DeviceBuffer buffer, std::vector<LayerWeights> layers, const OuterWeights& outer)
      : buffer_(std::move(buffer)), layers_(std::move(layers)), outer_(outer) {}

  absl::StatusOr<LayerWeights> Layer(int32_t layer) override {
    TANDEM_CHECK(layer >= 0 && static_cast<size_t>(layer) < layers_.size(), "no such layer");
    return layers_[layer];
  }
  absl::StatusOr<OuterWeights> Outer() override { return outer_; }
  int64_t resident_bytes() const override { return static_cast<int64_t>(buffer_.size()); }

 private:
  DeviceBuffer buffer_;
  std::vector<LayerWeights> layers_;
  OuterWeights outer_;
};

// Fills the planned memory, tensor by tensor; what has been read leaves the resident set at once.
class Loader {
 public:
  struct Parts {
    const Checkpoint& checkpoint;
    Ops& ops;
    Stream& stream;
    std::byte* memory;
    const LoadProgress& progress;
  };
  explicit Loader(const Parts& parts) : parts_(parts) {}

  absl::Status Load(const PlacedMatrix& placed, PackedMatrix& matrix) {
    if (placed.sources.empty()) return absl::OkStatus();
    matrix = {parts_.memory + placed.offset, placed.dtype, placed.n, placed.k};
    std::vector<TensorView> views;
    std::vector<std::vector<std::byte>> aligned(placed.sources.size());
    for (size_t i = 0; i < placed.sources.size(); ++i) {
      const CheckpointTensor& source = placed.sources[i];
      views.emplace_back(Aligned(source, aligned[i]), source.dtype,
                         std::initializer_list<int64_t>{source.shape[0], source.shape[1]});
    }
    RETURN_IF_ERROR(parts_.ops.PackWeight(parts_.stream, matrix, views));
    Done(placed.sources);
    return absl::OkStatus();
  }

  absl::Status Load(const PlacedVector& placed, TensorView& vector) {
    if (placed.sources.empty()) return absl::OkStatus();
    vector = TensorView(parts_.memory + placed.offset, DType::kF32, {placed.size});
    std::vector<float> values;
    values.reserve(placed.size);
    for (const CheckpointTensor& source : placed.sources) AppendAsF32(source, values);
    const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
    RETURN_IF_ERROR(parts_.stream.Copy({parts_.memory + placed.offset, bytes.size()}, bytes));
    Done(placed.sources);
    return absl::OkStatus();
  }

  absl::Status Load(const LayerLayout& placed, LayerWeights& layer) {
    RETURN_IF_ERROR(Load(placed.attention_norm, layer.attention_norm));
    RETURN_IF_ERROR(Load(placed.qkv, layer.qkv));
    RETURN_IF_ERROR(Load(placed.qkv_bias, layer.qkv_bias));
    RETURN_IF_ERROR(Load(placed.q_norm, layer.q_norm));
    RETURN_IF_ERROR(Load(placed.k_norm, layer.k_norm));
    RETURN_IF_ERROR(Load(placed.output, layer.output));
    RETURN_IF_ERROR(Load(placed.output_bias, layer.output_bias));
    RETURN_IF_ERROR(Load(placed.mlp_norm, layer.mlp_norm));
    RETURN_IF_ERROR(Load(placed.gate_up, layer.gate_up));
    return Load(placed.down, layer.down);
  }

 private:
  // The format lets data begin at any byte; ops read whole elements. A file that keeps its data
  // aligned, as nearly all do, is read in place.
  static void* Aligned(const CheckpointTensor& tensor, std::vector<std::byte>& copy) {
    const auto address = reinterpret_cast<uintptr_t>(tensor.bytes.data());
    if (address % static_cast<uintptr_t>(SizeOf(tensor.dtype)) == 0) {
      return const_cast<std::byte*>(tensor.bytes.data());
    }
    copy.assign(tensor.bytes.begin(), tensor.bytes.end());
    return copy.data();
  }

  void Done(const std::vector<CheckpointTensor>& sources) {
    for (const CheckpointTensor& source : sources) {
      parts_.checkpoint.Forget(source);
      loaded_bytes_ += source.bytes.size();
    }
    if (parts_.progress) parts_.progress(loaded_bytes_, parts_.checkpoint.total_bytes());
  }

  Parts parts_;
  uint64_t loaded_bytes_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<WeightStore>> LoadResidentWeights(const ModelConfig& config,
                                                                 const Checkpoint& checkpoint,
                                                                 Device& device, Ops& ops,
                                                                 const LoadProgress& progress) {
  ASSIGN_OR_RETURN(const WeightLayout layout, PlanWeights(config, checkpoint, ops));
  ASSIGN_OR_RETURN(DeviceBuffer buffer, device.Allocate(layout.total_bytes));
  ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device.NewStream());

  Loader loader({checkpoint, ops, *stream, buffer.data(), progress});
  OuterWeights outer;
  std::vector<LayerWeights> layers(layout.layers.size());
  RETURN_IF_ERROR(loader.Load(layout.embedding, outer.embedding));
  for (size_t i = 0; i < layers.size(); ++i) {
    RETURN_IF_ERROR(loader.Load(layout.layers[i], layers[i]));
  }
  RETURN_IF_ERROR(loader.Load(layout.final_norm, outer.final_norm));
  RETURN_IF_ERROR(loader.Load(layout.lm_head, outer.lm_head));
  if (config.tie_word_embeddings) outer.lm_head = outer.embedding;
  RETURN_IF_ERROR(stream->Synchronize());
  return std::make_unique<ResidentWeights>(std::move(buffer), std::move(layers), outer);
}

}  // namespace tandem
