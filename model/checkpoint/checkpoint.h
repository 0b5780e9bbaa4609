#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "model/checkpoint/mapped_file.h"

namespace tandem {

// One tensor of a checkpoint: a row-major view of a mapped file.
struct CheckpointTensor {
  DType dtype = DType::kF32;  // f32 | f16 | bf16 | f8e4m3 | i8
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

// A checkpoint directory, mapped read-only: model.safetensors, or the shards that
// model.safetensors.index.json names. Tensors stay valid as long as it lives.
// Thread-safe after Open.
class Checkpoint {
 public:
  // Maps the files of a directory. NOT_FOUND when neither file is there; errors name the file.
  static absl::StatusOr<std::unique_ptr<Checkpoint>> Open(const std::string& directory);

  // The tensor of that name. NOT_FOUND quotes the name.
  absl::StatusOr<CheckpointTensor> Find(std::string_view name) const;
  bool Contains(std::string_view name) const;
  std::vector<std::string> Names() const;
  // The sum of the sizes of all tensors.
  uint64_t total_bytes() const { return total_bytes_; }
  // The dtype that most bytes of the float tensors have.
  DType PrevalentDType() const;
  // Tells the system that the tensor's bytes are not needed again soon, so that packed weights
  // replace the mapped ones in resident memory.
  void Forget(const CheckpointTensor& tensor) const;

 private:
  Checkpoint() = default;
  absl::Status AddFile(const std::string& path);
  absl::Status AddShards(const std::string& directory, const std::string& index_path);

  std::vector<MappedFile> files_;
  absl::flat_hash_map<std::string, CheckpointTensor> tensors_;
  uint64_t total_bytes_ = 0;
};

}  // namespace tandem
