#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tandem {

inline constexpr size_t kMaxTracestateBytes = 512;

// The tracestate that is passed on: the members of all headers of that name, in their order, joined
// by commas. Nothing where a member is malformed, a key comes twice or there are more than 32
// members: the specification has the whole tracestate dropped then. Where it is longer than
// kMaxTracestateBytes, members of more than 128 bytes are left out first, then those at the end.
// Accepts any bytes.
std::optional<std::string> JoinTracestates(std::span<const std::string_view> headers);

}  // namespace tandem
