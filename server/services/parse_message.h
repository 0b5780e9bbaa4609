#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace tandem {

// Parses `bytes` into `message`. Total over any bytes: INVALID_ARGUMENT names the string field that
// is not UTF-8, or says that the bytes are no such message.
absl::Status ParseMessage(std::string_view bytes, google::protobuf::Message& message);

}  // namespace tandem
