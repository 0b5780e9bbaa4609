#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

// Maps each shard file to the tensors that the index lists for it.
using ShardTensors = std::map<std::string, std::vector<std::string>>;

// Parses a model.safetensors.index.json. Accepts any bytes. INVALID_ARGUMENT for text that is not
// such an index and for a shard name that leads out of the directory of the index.
absl::StatusOr<ShardTensors> ParseShardIndex(std::string_view json);

}  // namespace tandem
