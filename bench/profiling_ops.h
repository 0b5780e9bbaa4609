#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "kernels/op_cost.h"
#include "kernels/ops.h"

namespace tandem {

enum class OpKind : uint8_t {
  kEmbedding,
  kRmsNorm,
  kRope,
  kGemm,
  kSiluMul,
  kStoreKv,
  kRopeStoreKv,
  kAttentionPrefill,
  kAttentionDecode,
  kSample,
  kOther,
};
inline constexpr size_t kNumOpKinds = static_cast<size_t>(OpKind::kOther) + 1;
std::string_view Name(OpKind kind);

// What the calls of one kind took, and what they must at least have moved and computed.
struct OpTotals {
  double seconds = 0;
  OpCost cost;
  int64_t calls = 0;
};
using OpProfile = std::array<OpTotals, kNumOpKinds>;

OpTotals Sum(const OpProfile& profile);

// Marks when the work of each call is queued, for devices whose work goes on when a call returns.
class OpClock {
 public:
  virtual ~OpClock() = default;
  virtual absl::Status Begin(Stream& stream, OpKind kind) = 0;
  virtual absl::Status End(Stream& stream, OpKind kind) = 0;
};

// Forwards to another Ops and adds up time and cost per kind of op. The time is the op's only where
// a call returns when its work is done, as on the CPU; `clock`, which may be null and must outlive
// it, can tell the time elsewhere.
class ProfilingOps final : public Ops {
 public:
  explicit ProfilingOps(std::unique_ptr<Ops> ops, OpClock* clock = nullptr)
      : ops_(std::move(ops)), clock_(clock) {}

  DType ActivationType(DType weights) const override { return ops_->ActivationType(weights); }
  absl::Status Reserve(const WorkLimits& limits) override { return ops_->Reserve(limits); }
  size_t PlanBytes() const override { return ops_->PlanBytes(); }
  int64_t PackedBytes(WeightFormat format, int64_t n, int64_t k) const override {
    return ops_->PackedBytes(format, n, k);
  }

  // The totals since the last call.
  OpProfile Take() { return std::exchange(profile_, {}); }

 private:
  template <typename Call>
  absl::Status Timed(Stream& stream, OpKind kind, const OpCost& cost, Call call) {
    absl::Status status;
    if (clock_ != nullptr) status.Update(clock_->Begin(stream, kind));
    const auto start = std::chrono::steady_clock::now();
    status.Update(call());
    OpTotals& totals = profile_[static_cast<size_t>(kind)];
    totals.seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    totals.cost.bytes += cost.bytes;
    totals.cost.flops += cost.flops;
    ++totals.calls;
    if (clock_ != nullptr) status.Update(clock_->End(stream, kind));
    return status;
  }

  absl::Status DoPackWeight(Stream& stream, const PackedMatrix& dst,
                            std::span<const TensorView> sources, const TensorView& scales) override;
  absl::Status DoEmbedding(Stream& stream, const EmbeddingArgs& args) override;
  absl::Status DoRmsNorm(Stream& stream, const RmsNormArgs& args) override;
  absl::Status DoRope(Stream& stream, const RopeArgs& args) override;
  absl::Status DoGemm(Stream& stream, const GemmArgs& args) override;
  absl::Status DoPrepareGemm(const GemmArgs& args) override { return ops_->PrepareGemm(args); }
  absl::Status DoSiluMul(Stream& stream, const SiluMulArgs& args) override;
  absl::Status DoStoreKv(Stream& stream, const StoreKvArgs& args) override;
  absl::Status DoRopeStoreKv(Stream& stream, const RopeArgs& rope,
                             const StoreKvArgs& store) override;
  absl::StatusOr<AttentionPlan> DoPlanPrefill(const AttentionArgs& args,
                                              StepStaging& staging) override {
    return ops_->PlanPrefill(args, staging);
  }
  absl::StatusOr<AttentionPlan> DoPlanDecode(Stream& stream, const AttentionArgs& args) override;
  absl::Status DoAttentionPrefill(Stream& stream, const AttentionArgs& args) override;
  absl::Status DoAttentionDecode(Stream& stream, const AttentionArgs& args) override;
  absl::Status DoColumnMass(Stream& stream, const ColumnMassArgs& args) override;
  absl::Status DoCopyBlocks(Stream& stream, const CopyBlocksArgs& args) override;
  absl::Status DoCopyTokens(Stream& stream, const CopyTokensArgs& args) override;
  absl::Status DoGatherBlocks(Stream& stream, const MoveBlocksArgs& args) override;
  absl::Status DoScatterBlocks(Stream& stream, const MoveBlocksArgs& args) override;
  absl::Status DoConvertKv(Stream& stream, const ConvertKvArgs& args) override;
  SamplePlan DoPlanSample(std::span<const SampleRow> rows, StepStaging& staging) override {
    return ops_->PlanSample(rows, staging);
  }
  absl::Status DoSample(Stream& stream, const SampleArgs& args) override;

  std::unique_ptr<Ops> ops_;
  OpClock* const clock_;
  OpProfile profile_;
};

}  // namespace tandem
