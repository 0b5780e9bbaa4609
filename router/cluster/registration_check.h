#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "tandem/v1/cluster.pb.h"

namespace tandem {

// Whether a router may keep this registration and write it to its log: every field is present, in
// range and of bounded length. INVALID_ARGUMENT names the field and, unless it is text, its value.
absl::Status CheckRegistration(const v1::RegisterRequest& request);

// Whether `name` may be the name of a worker or of a request: at most 128 characters of printable
// ASCII without spaces, so that a log line or a metric cannot be forged with it. `field`: what the
// status calls the name.
absl::Status CheckName(std::string_view field, std::string_view name);

}  // namespace tandem
