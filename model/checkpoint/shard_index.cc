#include "model/checkpoint/shard_index.h"

#include "base/status.h"
#include "model/checkpoint/strict_json.h"

namespace tandem {
namespace {

absl::Status CheckShardName(std::string_view name) {
  constexpr std::string_view kSuffix = ".safetensors";
  const bool plain = name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
  if (!plain || name.size() <= kSuffix.size() || !name.ends_with(kSuffix)) {
    return InvalidArgument("shard name {}: it must be a plain file name that ends in {}",
                           Quoted(name), kSuffix);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ShardTensors> ParseShardIndex(std::string_view json) {
  ASSIGN_OR_RETURN(const nlohmann::json index, ParseStrictJson(json));
  const auto weight_map = index.is_object() ? index.find("weight_map") : index.end();
  if (weight_map == index.end() || !weight_map->is_object() || weight_map->empty()) {
    return InvalidArgument("weight_map is missing or no object of tensor name to file name");
  }
  ShardTensors shards;
  for (const auto& [tensor, file] : weight_map->items()) {
    const auto* name = file.get_ptr<const std::string*>();
    if (name == nullptr) {
      return InvalidArgument("weight_map: {} is in {}, not in a file", Quoted(tensor), Shown(file));
    }
    RETURN_IF_ERROR(CheckShardName(*name));
    shards[*name].push_back(tensor);
  }
  return shards;
}

}  // namespace tandem
