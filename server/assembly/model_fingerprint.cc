#include "server/assembly/model_fingerprint.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "model/checkpoint/mapped_file.h"

namespace tandem {
namespace {

// The bytes of one sample. Each tensor has two samples: at its beginning and in its middle.
constexpr size_t kSampleBytes = 4096;
constexpr size_t kMaxConfigBytes = 1 << 20;

uint64_t Mix(uint64_t hash, std::span<const std::byte> bytes) { return Hash64(bytes, hash); }

uint64_t Mix(uint64_t hash, std::string_view text) {
  return Mix(hash, std::as_bytes(std::span(text.data(), text.size())));
}

uint64_t Mix(uint64_t hash, const CheckpointTensor& tensor) {
  hash = Mix(hash, Name(tensor.dtype));
  hash = Mix(hash, std::as_bytes(std::span(tensor.shape)));
  const size_t sample = std::min(kSampleBytes, tensor.bytes.size());
  hash = Mix(hash, tensor.bytes.first(sample));
  const size_t middle = (tensor.bytes.size() - sample) / 2;
  return Mix(hash, tensor.bytes.subspan(middle, sample));
}

}  // namespace

absl::StatusOr<uint64_t> FingerprintModel(const std::string& directory,
                                          const Checkpoint& checkpoint, WeightsAs weights_as) {
  ASSIGN_OR_RETURN(const std::string config,
                   ReadSmallFile(directory + "/config.json", kMaxConfigBytes));
  uint64_t hash = Mix(0, config);
  std::vector<std::string> names = checkpoint.Names();
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(const CheckpointTensor tensor, checkpoint.Find(name));
    hash = Mix(Mix(hash, name), tensor);
  }
  return weights_as == WeightsAs::kStored ? hash : Mix(hash, Name(weights_as));
}

}  // namespace tandem
