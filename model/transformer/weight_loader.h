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

// Fills the planned memory, one matrix or vector per call, and releases the mapped pages that it
// has read. The work is complete when the stream has finished it, which Await waits for. Thread:
// one at a time.
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
  // The objects that `parts` refers to must outlive it.
  explicit WeightLoader(const Parts& parts) : parts_(parts) {}
  ~WeightLoader() { Await().IgnoreError(); }

  absl::Status Load(const PlacedMatrix& placed);
  absl::Status Load(const PlacedVector& placed);
  absl::Status Load(const LayerLayout& placed);
  // Waits until everything loaded so far is in memory.
  absl::Status Await();
  // The hash of all bytes read so far, in their order.
  uint64_t hash() const { return hash_; }

 private:
  void* Aligned(const CheckpointTensor& tensor);
  // The scales of all sources, expanded to [n, groups of 32 of k] f32; absent where the sources are
  // floats.
  absl::StatusOr<TensorView> ExpandedScales(const PlacedMatrix& placed);
  void Done(std::span<const CheckpointTensor> sources);

  const Parts parts_;
  // Copies of source tensors, and values widened to f32, that the stream may still read.
  std::vector<std::vector<std::byte>> copies_;
  std::vector<std::vector<float>> widened_;
  uint64_t loaded_bytes_ = 0;
  uint64_t hash_ = 0;
};

}  // namespace tandem
