#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "model/checkpoint/checkpoint.h"
#include "model/transformer/weight_layout.h"
#include "model/transformer/weight_store.h"

namespace tandem {

// Fills the planned memory, one placed matrix or vector per call; what has been read leaves the
// resident set at once. The work is done when the stream has done it: Await.
// Thread: one at a time.
class WeightLoader {
 public:
  struct Parts {
    const WeightLayout& layout;
    const Checkpoint& checkpoint;
    Ops& ops;
    Stream& stream;
    std::byte* memory;
    const LoadProgress& progress;
  };
  // What `parts` refers to must outlive it.
  explicit WeightLoader(const Parts& parts) : parts_(parts) {}
  ~WeightLoader() { Await().IgnoreError(); }

  absl::Status Load(const PlacedMatrix& placed);
  absl::Status Load(const PlacedVector& placed);
  absl::Status Load(const LayerLayout& placed);
  // Returns when all that was loaded is there.
  absl::Status Await();

 private:
  void* Aligned(const CheckpointTensor& tensor);
  void Done(std::span<const CheckpointTensor> sources);

  const Parts parts_;
  // What the stream may still read from.
  std::vector<std::vector<std::byte>> copies_;
  std::vector<std::vector<float>> widened_;
  uint64_t loaded_bytes_ = 0;
};

}  // namespace tandem
