#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer/json_fields.h"

namespace tandem {

// The ids that the post_processor of a tokenizer.json adds around one text, such as a leading BOS.
struct PostProcessor {
  std::vector<int32_t> before;
  std::vector<int32_t> after;

  // Parses `value`, the post_processor at `path` of a tokenizer.json; null stands for none. Ids are
  // in [0, id_limit).
  static absl::StatusOr<PostProcessor> FromJson(const nlohmann::json* value, std::string path,
                                                int32_t id_limit);
};

}  // namespace tandem
