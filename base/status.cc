#include "base/status.h"

#include <string_view>

#include "absl/strings/cord.h"

namespace tandem {

absl::Status Annotate(const absl::Status& status, std::string_view context) {
  if (status.ok()) return status;
  const absl::string_view message = status.message();
  absl::Status annotated(
      status.code(),
      fmt::format("{}: {}", context, std::string_view(message.data(), message.size())));
  status.ForEachPayload([&annotated](absl::string_view type, const absl::Cord& payload) {
    annotated.SetPayload(type, payload);
  });
  return annotated;
}

}  // namespace tandem
