#pragma once

#include "kernels/op_args.h"
#include "kernels/tensor.h"
#include "model/transformer/activations.h"
#include "model/transformer/weight_store.h"

namespace tandem {

// The matrix products of a layer and of the head, used both for preparing and for computing.
GemmArgs QkvProduct(const LayerWeights& w, const Activations& a);
GemmArgs OutputProduct(const LayerWeights& w, const Activations& a);
GemmArgs GateUpProduct(const LayerWeights& w, const Activations& a);
GemmArgs DownProduct(const LayerWeights& w, const Activations& a);
GemmArgs HeadProduct(const HeadWeights& w, const Activations& a, const TensorView& logits);

}  // namespace tandem
