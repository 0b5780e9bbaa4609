#include "model/transformer/weight_layout.h"

#include <cstring>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "base/status.h"
#include "fmt/ranges.h"

namespace tandem {
namespace {

constexpr int64_t kAlignment = 4096;

struct Part {
  std::string name;
  int64_t rows;
};

class Planner {
 public:
  // `quantized`: how tensors of codes are quantised. Without it they are refused.
  Planner(const Checkpoint& checkpoint, const Ops& ops, WeightsAs weights_as,
          const std::optional<QuantizedWeights>& quantized)
      : checkpoint_(checkpoint), ops_(ops), weights_as_(weights_as), quantized_(quantized) {}

  // Places the tensors `prefix` + part.name, each [part.rows, k], as one matrix of a layer.
  absl::Status Place(const std::string& prefix, std::initializer_list<Part> parts, int64_t k,
                     PlacedMatrix& matrix) {
    return PlaceAs(weights_as_, prefix, parts, k, matrix);
  }

  // Places a tensor [rows, k] as the embedding or the head.
  absl::Status PlaceVocabulary(const std::string& name, int64_t rows, int64_t k,
                               PlacedMatrix& matrix) {
    return PlaceAs(OfVocabulary(weights_as_), "", {{name, rows}}, k, matrix);
  }

  // Places the tensors `prefix` + part.name, each [part.rows], as one vector.
  absl::Status Place(const std::string& prefix, std::initializer_list<Part> parts,
                     PlacedVector& vector) {
    for (const Part& part : parts) {
      ASSIGN_OR_RETURN(CheckpointTensor tensor, Find(prefix + part.name, {part.rows}));
      if (IsCode(tensor.dtype)) {
        return InvalidArgument("tensor {} is {}, must be floats", prefix + part.name,
                               Name(tensor.dtype));
      }
      vector.size += part.rows;
      vector.sources.push_back(std::move(tensor));
    }
    vector.offset = Take(vector.size * SizeOf(DType::kF32));
    return absl::OkStatus();
  }

  const absl::flat_hash_set<std::string>& placed() const { return placed_; }
  int64_t packed_bytes() const { return packed_bytes_; }
  uint64_t source_bytes() const { return source_bytes_; }

 private:
  absl::Status PlaceAs(WeightsAs as, const std::string& prefix, std::initializer_list<Part> parts,
                       int64_t k, PlacedMatrix& matrix) {
    matrix.name = prefix + parts.begin()->name;
    matrix.k = k;
    for (const Part& part : parts) {
      const std::string name = prefix + part.name;
      ASSIGN_OR_RETURN(CheckpointTensor tensor, Find(name, {part.rows, k}));
      RETURN_IF_ERROR(CheckCodes(name, tensor.dtype));
      if (!matrix.sources.empty() && tensor.dtype != matrix.sources[0].dtype) {
        return InvalidArgument(
            "tensor {} is {}, but {} beside it is {}: they are stacked and must "
            "have one dtype",
            name, Name(tensor.dtype), prefix + parts.begin()->name, Name(matrix.sources[0].dtype));
      }
      matrix.n += part.rows;
      if (IsCode(tensor.dtype)) {
        ASSIGN_OR_RETURN(PlacedScales scales, FindScales(name, {part.rows, k}));
        matrix.scales.push_back(std::move(scales));
      }
      matrix.sources.push_back(std::move(tensor));
    }
    ASSIGN_OR_RETURN(matrix.format, FormatOf(matrix, as));
    matrix.offset = Take(ops_.PackedBytes(matrix.format, matrix.n, k));
    return absl::OkStatus();
  }

  // The shape of the weights that a tensor of codes holds.
  struct WeightShape {
    int64_t rows;
    int64_t k;
  };

  static bool IsCode(DType dtype) { return dtype == DType::kI8 || dtype == DType::kF8E4M3; }

  absl::Status CheckCodes(const std::string& name, DType dtype) const {
    if (!IsCode(dtype)) return absl::OkStatus();
    if (!quantized_.has_value()) {
      return InvalidArgument("tensor {} is {}, but config.json has no quantization_config", name,
                             Name(dtype));
    }
    if (dtype == quantized_->dtype) return absl::OkStatus();
    return InvalidArgument("tensor {} is {}, but quantization_config of config.json says {}", name,
                           Name(dtype), Name(quantized_->dtype));
  }

  static absl::StatusOr<WeightFormat> FormatOf(const PlacedMatrix& matrix, WeightsAs as) {
    const DType stored = matrix.sources[0].dtype;
    if (as == WeightsAs::kStored) return WeightFormat(stored);
    if (stored == DType::kF8E4M3) {
      return Unimplemented(
          "tensor {} is f8e4m3, which --weights {} does not take: leave the flag away", matrix.name,
          Name(as));
    }
    return WeightFormat::Int8();
  }

  // Finds the scales of a quantised weight. Which weights share a scale follows from
  // quantization_config or else from the scales' shape; a group of the packed weight must lie in
  // one block.
  absl::StatusOr<PlacedScales> FindScales(const std::string& weight, WeightShape weights) {
    const std::string name = weight + quantized_->scale_suffix;
    ASSIGN_OR_RETURN(CheckpointTensor tensor, checkpoint_.Find(name));
    const std::vector<int64_t>& shape = tensor.shape;
    PlacedScales scales{.name = name,
                        .block_outputs = quantized_->block_outputs,
                        .block_inputs = quantized_->block_inputs};
    const bool is_one = shape.empty() || (shape.size() == 1 && shape[0] == 1);
    if (scales.block_outputs == 0 && is_one) {
      scales.block_outputs = weights.rows;
      scales.block_inputs = weights.k;
    } else if (scales.block_outputs == 0) {
      const bool divides = shape.size() == 2 && shape[1] > 0 && weights.k % shape[1] == 0;
      scales.block_outputs = 1;
      scales.block_inputs = divides ? weights.k / shape[1] : 1;
    }
    const std::vector<int64_t> blocks = {Blocks(weights.rows, scales.block_outputs),
                                         Blocks(weights.k, scales.block_inputs)};
    const bool fits = shape == blocks || (is_one && blocks == std::vector<int64_t>{1, 1});
    const bool holds_groups =
        scales.block_inputs % kCodeGroupInputs == 0 || scales.block_inputs == weights.k;
    if (!fits || !holds_groups || IsCode(tensor.dtype)) {
      return InvalidArgument("tensor {} is {} [{}], must be {}", name, Name(tensor.dtype),
                             fmt::join(shape, ", "), WantedScales(weights));
    }
    placed_.insert(name);
    source_bytes_ += tensor.bytes.size();
    scales.tensor = std::move(tensor);
    return scales;
  }

  static int64_t Blocks(int64_t extent, int64_t of) { return (extent + of - 1) / of; }

  std::string WantedScales(WeightShape weights) const {
    if (quantized_->block_outputs == 0) {
      return fmt::format(
          "floats for [{0}, {1}] weights: [{0}, 1], one value, or [{0}, groups] of a multiple of "
          "{2} inputs each",
          weights.rows, weights.k, kCodeGroupInputs);
    }
    return fmt::format(
        "floats for [{}, {}] weights in blocks of [{}, {}], whose inputs are a multiple of {}",
        weights.rows, weights.k, quantized_->block_outputs, quantized_->block_inputs,
        kCodeGroupInputs);
  }

  absl::StatusOr<CheckpointTensor> Find(const std::string& name, std::vector<int64_t> shape) {
    ASSIGN_OR_RETURN(CheckpointTensor tensor, checkpoint_.Find(name));
    if (tensor.shape != shape) {
      return InvalidArgument("tensor {} has the shape [{}], but config.json asks for [{}]", name,
                             fmt::join(tensor.shape, ", "), fmt::join(shape, ", "));
    }
    placed_.insert(name);
    source_bytes_ += tensor.bytes.size();
    return tensor;
  }

  int64_t Take(int64_t bytes) {
    const int64_t offset = packed_bytes_;
    packed_bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return offset;
  }

  const Checkpoint& checkpoint_;
  const Ops& ops_;
  const WeightsAs weights_as_;
  const std::optional<QuantizedWeights>& quantized_;
  absl::flat_hash_set<std::string> placed_;
  int64_t packed_bytes_ = 0;
  uint64_t source_bytes_ = 0;
};

absl::Status PlaceLayer(const ModelConfig& c, int32_t index, Planner& planner, LayerLayout& layer) {
  const std::string prefix = fmt::format("model.layers.{}.", index);
  const int64_t q = int64_t{c.num_heads} * c.head_dim;
  const int64_t kv = int64_t{c.num_kv_heads} * c.head_dim;
  const int64_t hidden = c.hidden_size;
  const int64_t ffn = c.intermediate_size;

  RETURN_IF_ERROR(
      planner.Place(prefix, {{"input_layernorm.weight", hidden}}, layer.attention_norm));
  RETURN_IF_ERROR(planner.Place(
      prefix + "self_attn.", {{"q_proj.weight", q}, {"k_proj.weight", kv}, {"v_proj.weight", kv}},
      hidden, layer.qkv));
  if (c.qkv_bias) {
    RETURN_IF_ERROR(planner.Place(prefix + "self_attn.",
                                  {{"q_proj.bias", q}, {"k_proj.bias", kv}, {"v_proj.bias", kv}},
                                  layer.qkv_bias));
  }
  if (c.qk_norm) {
    RETURN_IF_ERROR(planner.Place(prefix, {{"self_attn.q_norm.weight", c.head_dim}}, layer.q_norm));
    RETURN_IF_ERROR(planner.Place(prefix, {{"self_attn.k_norm.weight", c.head_dim}}, layer.k_norm));
  }
  RETURN_IF_ERROR(planner.Place(prefix, {{"self_attn.o_proj.weight", hidden}}, q, layer.output));
  if (c.output_bias) {
    RETURN_IF_ERROR(planner.Place(prefix, {{"self_attn.o_proj.bias", hidden}}, layer.output_bias));
  }
  RETURN_IF_ERROR(
      planner.Place(prefix, {{"post_attention_layernorm.weight", hidden}}, layer.mlp_norm));
  RETURN_IF_ERROR(planner.Place(prefix + "mlp.",
                                {{"gate_proj.weight", ffn}, {"up_proj.weight", ffn}}, hidden,
                                layer.gate_up));
  return planner.Place(prefix, {{"mlp.down_proj.weight", hidden}}, ffn, layer.down);
}

// Checks that the head in a checkpoint with tied embeddings equals the embedding.
absl::Status CheckTiedHead(const Checkpoint& checkpoint) {
  ASSIGN_OR_RETURN(const CheckpointTensor head, checkpoint.Find("lm_head.weight"));
  ASSIGN_OR_RETURN(const CheckpointTensor embedding, checkpoint.Find("model.embed_tokens.weight"));
  if (head.shape != embedding.shape || head.dtype != embedding.dtype ||
      std::memcmp(head.bytes.data(), embedding.bytes.data(), head.bytes.size()) != 0) {
    return InvalidArgument(
        "tie_word_embeddings is true, but tensor lm_head.weight is not the "
        "model.embed_tokens.weight that it is tied to");
  }
  checkpoint.Forget(head);
  checkpoint.Forget(embedding);
  return absl::OkStatus();
}

absl::Status RefuseUnplaced(const ModelConfig& config, const Checkpoint& checkpoint,
                            const Planner& planner) {
  for (const std::string& name : checkpoint.Names()) {
    if (planner.placed().contains(name)) continue;
    // Old Llama checkpoints contain these frequencies, which follow from the config.
    if (name.ends_with(".rotary_emb.inv_freq")) continue;
    const bool has_input_scales =
        config.quantized_weights.has_value() && config.quantized_weights->has_input_scales;
    if (has_input_scales && name.ends_with(".input_scale")) continue;
    if (config.tie_word_embeddings && name == "lm_head.weight") {
      RETURN_IF_ERROR(CheckTiedHead(checkpoint));
      continue;
    }
    return InvalidArgument(
        "tensor {} belongs to no part of the {} that config.json describes: "
        "do config.json and the weights belong together?",
        name, config.model_type);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<WeightLayout> PlanWeights(const ModelConfig& config, const Checkpoint& checkpoint,
                                         const Ops& ops, WeightsAs weights_as) {
  Planner planner(checkpoint, ops, weights_as, config.quantized_weights);
  WeightLayout layout;
  const int64_t vocab = config.vocab_size;
  const int64_t hidden = config.hidden_size;
  RETURN_IF_ERROR(
      planner.PlaceVocabulary("model.embed_tokens.weight", vocab, hidden, layout.embedding));
  layout.layers.resize(config.num_layers);
  for (int32_t i = 0; i < config.num_layers; ++i) {
    RETURN_IF_ERROR(PlaceLayer(config, i, planner, layout.layers[i]));
  }
  RETURN_IF_ERROR(planner.Place("model.", {{"norm.weight", hidden}}, layout.final_norm));
  if (!config.tie_word_embeddings) {
    const absl::Status head =
        planner.PlaceVocabulary("lm_head.weight", vocab, hidden, layout.lm_head);
    if (head.code() == absl::StatusCode::kNotFound) {
      return NotFound("{}; config.json does not set tie_word_embeddings",
                      std::string(head.message()));
    }
    RETURN_IF_ERROR(head);
  }
  RETURN_IF_ERROR(RefuseUnplaced(config, checkpoint, planner));
  layout.packed_bytes = planner.packed_bytes();
  layout.source_bytes = planner.source_bytes();
  return layout;
}

}  // namespace tandem
