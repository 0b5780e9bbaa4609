#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/attention_plan.h"
#include "kernels/op_args.h"

// The attention that blocks of the pool get (AttentionArgs::block_mass). For each chunk of keys a
// row stores the sum of its weights in every block, relative to the chunk's own maximum, and at the
// end its total; then the rows of a KV head are added up.

namespace tandem::cpu {

// The masses of the rows of one sequence and KV head, in memory of the caller.
struct BlockMasses {
  float* data = nullptr;  // [row][RowFloats]; null: masses are not wanted
  int64_t first_chunk = 0;
  int64_t num_chunks = 0;
  int64_t blocks_per_chunk = 0;

  bool present() const { return data != nullptr; }
  // A row has its maximum and sum, then for each chunk the chunk's maximum and the sum of each
  // block.
  int64_t ChunkFloats() const { return 1 + blocks_per_chunk; }
  int64_t RowFloats() const { return 2 + num_chunks * ChunkFloats(); }
  float* Row(int64_t row) const { return data + row * RowFloats(); }
  float* OfChunk(int64_t row, int64_t chunk) const {
    return Row(row) + 2 + (chunk - first_chunk) * ChunkFloats();
  }
  void SetTotal(int64_t row, float max, float sum) const {
    Row(row)[0] = max;
    Row(row)[1] = sum;
  }
};

// The masses of all sequences and KV heads of a decode step, one after the other.
class StepMasses {
 public:
  // Lays out the masses; returns the floats that are needed, 0 when args asks for no block_mass.
  size_t Plan(const AttentionArgs& args);
  void SetMemory(float* data) { data_ = data; }
  BlockMasses Of(int32_t seq, int32_t kv_head) const;
  // Writes the rows of args.block_mass that belong to a sequence and KV head.
  void Fold(const AttentionArgs& args, int32_t seq, int32_t kv_head) const;

 private:
  float* data_ = nullptr;
  int64_t group_ = 0;
  std::vector<BlockMasses> sequences_;  // one per sequence, whose data is null
  std::vector<size_t> starts_;          // of the sequences, in floats; empty: masses are not wanted
};

}  // namespace tandem::cpu
