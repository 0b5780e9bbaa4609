#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/op_args.h"
#include "tests/support/reference_floats.h"

// Every op in float64 and in the plainest words, over host memory: what backends are compared to.
// Results are dense, in the shape of the op's output.

namespace tandem::reference {

// `table` and `weight` are the matrices before packing, row-major.
std::vector<double> Embedding(const EmbeddingArgs& a, const TensorView& table);
std::vector<double> Gemm(const GemmArgs& a, const TensorView& weight);

std::vector<double> RmsNorm(const RmsNormArgs& a);
// Of q or of k: `heads` and its norm weight, which may be absent.
std::vector<double> Rope(const RopeArgs& a, const TensorView& heads, const TensorView& norm);
std::vector<double> SiluMul(const SiluMulArgs& a);

// `block_mass` has the shape of a.block_mass, whose data may be absent.
struct AttentionResult {
  std::vector<double> out;
  std::vector<double> lse;
  std::vector<double> block_mass;
};
AttentionResult Attention(const AttentionArgs& a);
// Computes its own lse.
std::vector<double> ColumnMass(const ColumnMassArgs& a);

// The probability with which each token is drawn, after penalties, temperature and filters.
std::vector<double> SampleDistribution(std::span<const float> logits, const SampleRow& row);
std::vector<double> Logprobs(std::span<const float> logits);

}  // namespace tandem::reference
