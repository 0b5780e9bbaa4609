#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/op_args.h"

// How KV lies in a pool, in the plainest words (base/kv_row.h), written apart from what backends
// do.

namespace tandem::reference {

// `values` [head_dim] as a row of the pool: every bit that StoreKv must write.
void StoreRow(const KvPoolView& pool, KvSide side, std::span<const float> values, std::byte* row);

// What a row of the pool stands for, in float64.
std::vector<double> LoadRow(const KvPoolView& pool, KvSide side, const std::byte* row);

// The scale of group `group` of a row of a quantised pool.
double ScaleOfGroup(const KvPoolView& pool, KvSide side, const std::byte* row, int group);

// The Hadamard transform of each 64 values, as a rotation: its own inverse.
std::vector<double> Rotated(std::span<const double> values);

}  // namespace tandem::reference
