#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "model/checkpoint/model_config.h"

namespace tandem {

// Rows [first_row, first_row + num_rows) of a step, whose K and V are stored with the values that
// `dtype` would have kept, although the pool's dtype is wider.
struct RoundedRows {
  int32_t first_row = 0;
  int32_t num_rows = 0;
  DType dtype = DType::kBF16;
};

// Rounds K and V of some rows to a narrower dtype on their way into the pool. A decode worker that
// preempted a request and computes its prompt again needs this when the prefill worker keeps KV in
// a narrower dtype: only rounded values are those that the prefill worker had sent, and only with
// them the request goes on with the tokens that it would have had without the preemption.
// The rows take a detour through a small buffer that is kept in the narrow dtype, because then the
// ops that every backend has (StoreKv, ConvertKv) suffice. Such a step costs two more passes over K
// and V of these rows in every layer.
// Thread: engine. The Ops and the device must outlive it.
class KvRounder {
 public:
  static absl::StatusOr<KvRounder> Create(const ModelConfig& config, Device& device, Ops& ops);

  // Stores `rows` again, rounded. `store` are the arguments with which all rows of the step were
  // stored.
  absl::Status Round(Stream& stream, std::span<const RoundedRows> rows, const StoreKvArgs& store);

 private:
  KvRounder(Ops& ops, DeviceBuffer memory);

  absl::Status RoundPart(Stream& stream, const RoundedRows& part, const StoreKvArgs& store);
  void FindRuns(const RoundedRows& part, const StoreKvArgs& store, const KvPoolView& rounded);

  Ops* ops_;
  DeviceBuffer memory_;         // one extent of the narrow dtype
  std::vector<int64_t> slots_;  // 0, 1, 2, ...: where the rows of a part lie in `memory_`
  std::vector<KvRun> runs_;     // the runs of one part
};

}  // namespace tandem
