#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"

namespace tandem {

// One tensor in the header of a safetensors file.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // bytes from the start of the file
  uint64_t end = 0;
};

// Parses the header of a safetensors file: 8 bytes little-endian header length, a JSON object of
// name -> {dtype, shape, data_offsets}, then the data. Accepts any bytes. Every offset is checked
// against `file_size`. INVALID_ARGUMENT names the tensor and the numbers; UNIMPLEMENTED a dtype
// other than F32, F16, BF16, F8_E4M3 and I8.
// Source: https://github.com/huggingface/safetensors (format description).
absl::StatusOr<std::vector<SafetensorsEntry>> ParseSafetensorsHeader(
    std::span<const std::byte> head, uint64_t file_size);

}  // namespace tandem
