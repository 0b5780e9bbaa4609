#include "model/transformer/weight_layout.h"

#include <cstring>
#include <initializer_list>
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
  // `has_int8`: tensors of i8 are weights.
  Planner(const Checkpoint& checkpoint, const Ops& ops, WeightsAs weights_as, bool has_int8)
      : checkpoint_(checkpoint), ops_(ops), weights_as_(weights_as), has_int8_(has_int8) {}

  // Places the tensors `prefix` + part.name, each [part.rows, k], as one matrix.
  absl::Status Place(const std::string& prefix, std::initializer_list<Part> parts, int64_t k,
                     PlacedMatrix& matrix) {
    matrix.name = prefix + parts.begin()->name;
    matrix.k = k;
    for (const Part& part : parts) {
      const std::string name = prefix + part.name;
      ASSIGN_OR_RETURN(CheckpointTensor tensor, Find(name, {part.rows, k}));
      if (tensor.dtype == DType::kI8 && !has_int8_) {
        return InvalidArgument("tensor {} is i8, but config.json has no quantization_config", name);
      }
      if (!matrix.sources.empty() && tensor.dtype != matrix.sources[0].dtype) {
        return InvalidArgument(
            "tensor {} is {}, but {} beside it is {}: they are stacked and must "
            "have one dtype",
            name, Name(tensor.dtype), prefix + parts.begin()->name, Name(matrix.sources[0].dtype));
      }
      matrix.n += part.rows;
      if (tensor.dtype == DType::kI8) {
        ASSIGN_OR_RETURN(PlacedScales scales, FindScales(name + "_scale", {part.rows, k}));
        matrix.scales.push_back(std::move(scales));
      }
      matrix.sources.push_back(std::move(tensor));
    }
    const DType stored = matrix.sources[0].dtype;
    const bool is_int8 = weights_as_ == WeightsAs::kInt8 || stored == DType::kI8;
    matrix.format = is_int8 ? WeightFormat::Int8() : WeightFormat(stored);
    const int64_t bytes = ops_.PackedBytes(matrix.format, matrix.n, k);
    if (bytes == 0) {
      return Unimplemented(
          "{}: weights in {}: this device does not compute with them yet, a CPU does", matrix.name,
          Name(matrix.format));
    }
    matrix.offset = Take(bytes);
    return absl::OkStatus();
  }

  // Places the tensors `prefix` + part.name, each [part.rows], as one vector.
  absl::Status Place(const std::string& prefix, std::initializer_list<Part> parts,
                     PlacedVector& vector) {
    for (const Part& part : parts) {
      ASSIGN_OR_RETURN(CheckpointTensor tensor, Find(prefix + part.name, {part.rows}));
      if (tensor.dtype == DType::kI8) {
        return InvalidArgument("tensor {} is i8, must be floats", prefix + part.name);
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
  // Of the weights of a tensor of i8.
  struct WeightShape {
    int64_t rows;
    int64_t k;
  };

  // Groups are made of whole groups of the packed weight, each of which gets its scale again.
  absl::StatusOr<PlacedScales> FindScales(const std::string& name, WeightShape weights) {
    ASSIGN_OR_RETURN(CheckpointTensor tensor, checkpoint_.Find(name));
    const std::vector<int64_t>& shape = tensor.shape;
    const bool is_matrix = shape.size() == 2 && shape[0] == weights.rows && shape[1] > 0;
    const int64_t per_row = is_matrix ? shape[1] : 1;
    const bool divides =
        per_row == 1 || (weights.k % per_row == 0 && weights.k / per_row % kInt8GroupInputs == 0);
    const bool is_one = shape.empty() || (shape.size() == 1 && shape[0] == 1);
    if ((!is_matrix && !is_one) || !divides || tensor.dtype == DType::kI8) {
      return InvalidArgument(
          "tensor {} is {} [{}], must be floats for [{}, {}] weights: [{}, 1], one value, or [{}, "
          "groups] of a multiple of {} inputs each",
          name, Name(tensor.dtype), fmt::join(shape, ", "), weights.rows, weights.k, weights.rows,
          weights.rows, kInt8GroupInputs);
    }
    placed_.insert(name);
    source_bytes_ += tensor.bytes.size();
    return PlacedScales{.name = name,
                        .tensor = std::move(tensor),
                        .rows = is_matrix ? weights.rows : 0,
                        .per_row = per_row};
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
  const bool has_int8_;
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

// A checkpoint with tied embeddings may contain the head as well if both are equal.
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
  Planner planner(checkpoint, ops, weights_as, config.int8_weights);
  WeightLayout layout;
  const int64_t vocab = config.vocab_size;
  const int64_t hidden = config.hidden_size;
  RETURN_IF_ERROR(
      planner.Place("model.", {{"embed_tokens.weight", vocab}}, hidden, layout.embedding));
  layout.layers.resize(config.num_layers);
  for (int32_t i = 0; i < config.num_layers; ++i) {
    RETURN_IF_ERROR(PlaceLayer(config, i, planner, layout.layers[i]));
  }
  RETURN_IF_ERROR(planner.Place("model.", {{"norm.weight", hidden}}, layout.final_norm));
  if (!config.tie_word_embeddings) {
    const absl::Status head =
        planner.Place("", {{"lm_head.weight", vocab}}, hidden, layout.lm_head);
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
