#include "base/status.h"

#include <string_view>

namespace tandem {

absl::Status Annotate(const absl::Status& status, std::string_view context) {
  if (status.ok()) return status;
  const absl::string_view message = status.message();
  return absl::Status(status.code(), fmt::format("{}: {}", context,
                                                 std::string_view(message.data(), message.size())));
}

}  // namespace tandem
