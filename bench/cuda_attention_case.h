#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bench/cuda_bench.h"
#include "kernels/cuda/launchers.h"

namespace tandem {

struct AttentionShape {
  std::vector<int32_t> contexts;  // of each sequence, its own rows included
  int32_t rows = 1;               // query rows of each sequence
  int32_t num_heads = 32;
  int32_t num_kv_heads = 8;
  int32_t head_dim = 128;
  int32_t block_tokens = 16;
  DType kv_dtype = DType::kBF16;

  int64_t total_tokens() const;
  // The bytes of K and V, each counted once.
  double KvBytes() const;
};

// Queries, outputs and a block pool of one shape, all random: blocks in random order, one layer of
// the pool per launch, as many as keep the data of one launch out of the cache of the next.
class AttentionCase {
 public:
  static absl::StatusOr<std::unique_ptr<AttentionCase>> Create(CudaBench& bench,
                                                               const AttentionShape& shape);

  // The arguments of launch number `launch`.
  AttentionArgs Args(int32_t launch) const;
  const AttentionShape& shape() const { return shape_; }
  int32_t max_context() const;
  CaseMemory& memory() { return memory_; }
  int32_t launches() const { return bench_.LaunchesOf(shape_.KvBytes()); }

  // Relative error of what `queue` writes for layer 0 against AttentionReference, over the last
  // rows of each sequence.
  absl::StatusOr<double> ErrorOf(const CudaVariant& variant);

 private:
  AttentionCase(CudaBench& bench, const AttentionShape& shape)
      : bench_(bench), shape_(shape), memory_(bench.device()) {}
  absl::Status FillHostArrays();

  CudaBench& bench_;
  const AttentionShape shape_;
  CaseMemory memory_;
  std::vector<int32_t> query_starts_ = {0};
  std::vector<int32_t> table_starts_ = {0};
  std::vector<int32_t> block_ids_;
  AttentionArgs args_;
  TensorView reference_;  // [S * min(rows, kCheckedRows), Hq, D]
};

// Ours, with a plan made once. `name` is the row's. Both keep what they use alive; `attention` must
// outlive the variant.
enum class BlockMass : uint8_t { kOff, kOn };
absl::StatusOr<CudaVariant> DecodeVariant(CudaBench& bench, AttentionCase& attention,
                                          std::string name, BlockMass mass = BlockMass::kOff);
absl::StatusOr<CudaVariant> PlanVariant(CudaBench& bench, AttentionCase& attention);
// The baseline of bench/classic_decode.h.
enum class Partitions : uint8_t { kNone, k512 };
absl::StatusOr<CudaVariant> ClassicVariant(CudaBench& bench, AttentionCase& attention,
                                           std::string name, Partitions partitions);
// `on` may pretend to be a device of lower capability, to get the portable kernel.
absl::StatusOr<CudaVariant> PrefillVariant(CudaBench& bench, AttentionCase& attention,
                                           std::string name, const cuda::LaunchTarget& on);

}  // namespace tandem
