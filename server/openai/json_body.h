#pragma once

#include <cstddef>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/json.h"

namespace tandem::openai {

// Objects keep the order of their fields, because chat templates print tools in the order in which
// the client wrote them.
using Json = OrderedJson;

inline constexpr size_t kMaxJsonDepth = 64;
// The most arrays and objects in a body. Each takes far more memory and time than its two bytes,
// and the thread that parses them serves other connections, too.
inline constexpr size_t kMaxJsonContainers = 100'000;

// Parses the body of a request. Accepts any bytes. INVALID_ARGUMENT with the place of a syntax
// error, for an object that names a field twice, because parsers differ in which of the two they
// take, and for arrays and objects nested deeper than kMaxJsonDepth, and for more than
// kMaxJsonContainers of them.
absl::StatusOr<Json> ParseJsonBody(std::string_view body);

}  // namespace tandem::openai
