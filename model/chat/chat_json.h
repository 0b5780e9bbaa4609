#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "base/json.h"

namespace tandem {

using ChatJson = OrderedJson;

// Parses the JSON of a client in time that is linear in its bytes; of the fields of one name in an
// object, the last counts. The value is_discarded() where the text is no JSON. INVALID_ARGUMENT
// when arrays and objects are nested deeper than templates take them.
absl::StatusOr<ChatJson> ParseChatJson(std::string_view text);

// Checks the depth of `json`: INVALID_ARGUMENT when it is nested deeper than templates take it.
// Must come before any copy, because copies recurse.
absl::Status CheckNesting(const ChatJson& json);

}  // namespace tandem
