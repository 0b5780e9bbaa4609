#include "model/transformer/rope_table.h"

#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"

namespace tandem {

// Angles are computed in f32 as in the reference, their cosines and sines in f64 and rounded once.
absl::StatusOr<RopeTable> RopeTable::Create(const ModelConfig& config, int32_t num_positions,
                                            Device& device) {
  const std::vector<float> frequencies = RopeInverseFrequencies(config);
  const size_t half = frequencies.size();
  const size_t elements = static_cast<size_t>(num_positions) * half;
  std::vector<float> values(2 * elements);
  for (int32_t p = 0; p < num_positions; ++p) {
    const size_t row = static_cast<size_t>(p) * half;
    for (size_t i = 0; i < half; ++i) {
      const double angle = static_cast<float>(p) * frequencies[i];
      values[row + i] = static_cast<float>(std::cos(angle));
      values[elements + row + i] = static_cast<float>(std::sin(angle));
    }
  }
  const std::span<const std::byte> bytes = std::as_bytes(std::span<const float>(values));
  ASSIGN_OR_RETURN(DeviceBuffer memory, device.Allocate(bytes.size()));
  ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device.NewStream());
  RETURN_IF_ERROR(stream->Copy(memory.bytes(), bytes));
  RETURN_IF_ERROR(stream->Synchronize());
  return RopeTable(std::move(memory), num_positions, static_cast<int64_t>(half));
}

}  // namespace tandem
