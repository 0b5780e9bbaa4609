#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer/json_fields.h"

namespace tandem {

// What the post_processor of a tokenizer.json puts around the ids of one text: a leading BOS, say.
struct PostProcessor {
  std::vector<int32_t> before;
  std::vector<int32_t> after;

  // `value` is the field `path`; null stands for none. Ids are in [0, id_limit).
  static absl::StatusOr<PostProcessor> FromJson(const nlohmann::json* value, std::string path,
                                                int32_t id_limit);
};

}  // namespace tandem
