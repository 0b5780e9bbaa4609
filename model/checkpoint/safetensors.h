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

namespace tandem {

// One tensor of a checkpoint: bytes in a mapped file, row-major.
struct CheckpointTensor {
  DType dtype = DType::kF32;  // f32 | f16 | bf16
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // bytes from the start of the file
  uint64_t end = 0;
};

// Reads the header of a safetensors file: 8 bytes little-endian header length, a JSON object of
// name -> {dtype, shape, data_offsets}, then the data. Total over any bytes. `file_size` is checked
// against every offset. INVALID_ARGUMENT names the tensor and the numbers; UNIMPLEMENTED a dtype
// that is not F32, F16 or BF16.
// Source: https://github.com/huggingface/safetensors (format description).
absl::StatusOr<std::vector<SafetensorsEntry>> ParseSafetensorsHeader(
    std::span<const std::byte> head, uint64_t file_size);

// A checkpoint directory, mapped read-only: model.safetensors, or the shards that
// model.safetensors.index.json names. Tensors stay valid as long as it lives.
// Thread-safe after Open.
class Checkpoint {
 public:
  // NOT_FOUND when neither file is there; errors name the file.
  static absl::StatusOr<std::unique_ptr<Checkpoint>> Open(const std::string& directory);
  ~Checkpoint();

  // NOT_FOUND with the name.
  absl::StatusOr<CheckpointTensor> Find(std::string_view name) const;
  bool Contains(std::string_view name) const;
  std::vector<std::string> Names() const;
  // Sum of all tensors.
  uint64_t total_bytes() const { return total_bytes_; }
  // Tells the system that these bytes are not needed again soon, so that packed weights replace
  // the mapped ones in resident memory instead of standing beside them.
  void Forget(const CheckpointTensor& tensor) const;

 private:
  struct Mapping;
  Checkpoint() = default;
  absl::Status AddFile(const std::string& path);

  std::vector<std::unique_ptr<Mapping>> mappings_;
  absl::flat_hash_map<std::string, CheckpointTensor> tensors_;
  uint64_t total_bytes_ = 0;
};

}  // namespace tandem
