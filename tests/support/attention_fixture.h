#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/op_args.h"
#include "tests/support/ops_fixture.h"
#include "tests/support/reference_ops.h"

namespace tandem {

struct HeadShape {
  int32_t kv_heads = 2;
  int32_t group = 2;
  int32_t head_dim = 64;
  int32_t block_tokens = 16;
  DType dtype = DType::kBF16;  // of the pool
  DType act = DType::kF32;
  int32_t window = 0;
  float softcap = 0;
  float k_scale = 1;
  float v_scale = 1;
};

struct AttentionSequence {
  int32_t q_len = 1;
  int32_t context = 1;
};

// Sequences over a pool of two layers in which all that no row sees is NaN, all blocks lie in
// random order, and table entries that no row sees are out of range.
struct AttentionProblem {
  static constexpr int32_t kNumLayers = 2;
  static constexpr int32_t kLayer = 1;  // the one that is filled

  HeadShape shape;
  std::vector<AttentionSequence> sequences;
  std::vector<float> q;  // rounded to what the backend multiplies
  std::vector<std::byte> pool;
  int32_t num_blocks = 0;
  std::vector<std::vector<int32_t>> tables;  // of each sequence

  int64_t num_heads() const { return int64_t{shape.kv_heads} * shape.group; }
  int64_t row() const { return num_heads() * shape.head_dim; }  // elements of one token of q
  KvPoolView Pool(const void* data) const;
  // K (part 0) or V (part 1) of all heads of one token.
  void SetKv(int part, int32_t block, int32_t offset, std::span<const float> values,
             int32_t layer = kLayer);
  void SetToken(size_t seq, int32_t token, int part, std::span<const float> values);
};

// Rows of a problem in one call: sequences with their tables one behind the other, whose queries
// start at `first_row` of the problem's q.
struct AttentionBatch {
  std::vector<int32_t> query_starts = {0};
  std::vector<int32_t> context_lens;
  std::vector<int32_t> block_ids;
  std::vector<int32_t> table_starts = {0};
  int64_t first_row = 0;

  void Add(AttentionSequence sequence, std::span<const int32_t> table);
  int64_t num_rows() const { return query_starts.back(); }
  int64_t num_sequences() const { return static_cast<int64_t>(context_lens.size()); }
};

enum class AttentionOp : uint8_t { kPrefill, kDecode };

struct AttentionRun {
  AttentionOp op = AttentionOp::kPrefill;
  SplitMode splits = SplitMode::kBalanced;
  bool lse = false;
  int64_t mass_blocks = 0;  // > 0: block_mass for that many is asked for
  bool planned = false;     // by PlanPrefill or PlanDecode before
  bool staged = false;      // the arrays come by way of StepStaging
  int32_t layer = AttentionProblem::kLayer;
};

struct AttentionOutput {
  std::vector<float> out;
  std::vector<float> lse;
  std::vector<float> block_mass;
};

class AttentionOpsTest : public OpsTest {
 protected:
  AttentionProblem MakeProblem(const HeadShape& shape, std::vector<AttentionSequence> sequences,
                               float q_scale = 1);
  static AttentionBatch Whole(const AttentionProblem& p);
  static AttentionBatch Alone(const AttentionProblem& p, size_t seq);

  AttentionOutput Run(const AttentionProblem& p, const AttentionBatch& batch,
                      const AttentionRun& run);
  std::vector<float> RunAll(const AttentionProblem& p, AttentionOp op = AttentionOp::kPrefill) {
    return Run(p, Whole(p), {.op = op}).out;
  }
  // Host arguments over `batch`, which must outlive them.
  AttentionArgs HostArgs(const AttentionProblem& p, const AttentionBatch& batch);
  reference::AttentionResult Expected(const AttentionProblem& p, int64_t mass_blocks = 0);

  // Prefill, and where every sequence has one row decode, against float64: out and lse.
  void ExpectRight(const AttentionProblem& p, double f32_bound = 1e-5);
  void ExpectOutput(const AttentionProblem& p, std::span<const float> out,
                    const std::vector<double>& expected, double f32_bound);
  // The error to be expected of lse: the CPU that multiplies bf16 rounds the scaled queries, which
  // are not of bf16 although q is.
  double LseBound(DType stored) const;
  // Largest number of blocks of a sequence.
  static int64_t MaxBlocks(const AttentionProblem& p);
};

// Every backend, and the CPU that multiplies bf16.
std::vector<OpsSetup> AttentionSetups();

}  // namespace tandem
