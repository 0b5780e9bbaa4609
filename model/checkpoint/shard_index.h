#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

// Shard file -> the tensors that the index promises in it.
using ShardTensors = std::map<std::string, std::vector<std::string>>;

// Reads a model.safetensors.index.json. Total over any bytes. INVALID_ARGUMENT where it is none, or
// names a shard that does not lie beside it: a name that leads elsewhere is refused, not followed.
absl::StatusOr<ShardTensors> ParseShardIndex(std::string_view json);

}  // namespace tandem
