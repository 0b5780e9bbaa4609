#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// Reads a file that a worker wrote with --kv-dump, and describes its KV as a router describes that
// of a request; times and workers are missing. NOT_FOUND when there is no such file, otherwise the
// errors of ParseKvDump: the message begins with the path.
absl::StatusOr<v1::RequestExplanation> ReadKvDumpFile(const std::string& path);

}  // namespace tandem
