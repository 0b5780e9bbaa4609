// model.safetensors.index.json of foreign bytes.
#include <cstddef>
#include <cstdint>
#include <set>
#include <string_view>

#include "base/check.h"
#include "model/checkpoint/shard_index.h"

// What is accepted leads nowhere but beside the index, and promises each tensor once.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto shards = tandem::ParseShardIndex({reinterpret_cast<const char*>(data), size});
  if (!shards.ok()) return 0;
  TANDEM_CHECK(!shards->empty(), "an index of nothing");
  std::set<std::string_view> all;
  for (const auto& [file, tensors] : *shards) {
    TANDEM_CHECK(file.find('/') == file.npos && file.find('\0') == file.npos && file[0] != '\0',
                 "a shard elsewhere");
    TANDEM_CHECK(file.ends_with(".safetensors") && !tensors.empty(), "a shard that is none");
    for (const std::string_view tensor : tensors) {
      TANDEM_CHECK(all.insert(tensor).second, "a tensor in two shards");
    }
  }
  return 0;
}
