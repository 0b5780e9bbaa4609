#include "model/transformer/layer_products.h"

namespace tandem {

GemmArgs QkvProduct(const LayerWeights& w, const Activations& a) {
  return {.x = a.normed, .weight = w.qkv, .bias = w.qkv_bias, .out = a.qkv};
}
GemmArgs OutputProduct(const LayerWeights& w, const Activations& a) {
  return {.x = a.attention,
          .weight = w.output,
          .bias = w.output_bias,
          .out = a.x,
          .output = GemmOutput::kAccumulate};
}
GemmArgs GateUpProduct(const LayerWeights& w, const Activations& a) {
  return {.x = a.normed, .weight = w.gate_up, .out = a.gate_up};
}
GemmArgs DownProduct(const LayerWeights& w, const Activations& a) {
  return {.x = a.gated, .weight = w.down, .out = a.x, .output = GemmOutput::kAccumulate};
}
GemmArgs HeadProduct(const HeadWeights& w, const Activations& a, const TensorView& logits) {
  return {.x = a.normed, .weight = w.lm_head, .out = logits};
}

}  // namespace tandem
