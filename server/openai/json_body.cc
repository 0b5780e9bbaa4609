#include "server/openai/json_body.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/json.h"
#include "base/status.h"

namespace tandem::openai {
namespace {

constexpr size_t kMaxQuoted = 80;

absl::Status StatusOf(const JsonFault& fault, std::string_view body) {
  switch (fault.kind) {
    case JsonFault::Kind::kRepeatedField:
      return InvalidArgument("the body names the field {} twice in one object",
                             JsonString(fault.field.substr(0, kMaxQuoted)));
    case JsonFault::Kind::kTooDeep:
      return InvalidArgument("the body nests arrays and objects more than {} deep", kMaxJsonDepth);
    case JsonFault::Kind::kTooManyContainers:
      return InvalidArgument("the body has more than {} arrays and objects", kMaxJsonContainers);
    case JsonFault::Kind::kNumberTooLarge:
    case JsonFault::Kind::kSyntax:
      break;
  }
  const std::string_view read = body.substr(0, fault.position);
  const auto line = 1 + std::count(read.begin(), read.end(), '\n');
  const size_t begin = read.rfind('\n') == std::string_view::npos ? 0 : read.rfind('\n') + 1;
  const size_t column = read.size() - begin + 1;
  if (fault.kind == JsonFault::Kind::kNumberTooLarge) {
    return InvalidArgument("the body has a number that is too large at line {}, column {}", line,
                           column);
  }
  return InvalidArgument("the body is not valid JSON: syntax error at line {}, column {}", line,
                         column);
}

}  // namespace

absl::StatusOr<Json> ParseJsonBody(std::string_view body) {
  if (body.empty()) return InvalidArgument("the body is empty: it must be a JSON object");
  ParsedJson parsed = ParseOrderedJson(body, {.depth = kMaxJsonDepth,
                                              .containers = kMaxJsonContainers,
                                              .repeated = RepeatedFields::kRefused});
  if (parsed.fault) return StatusOf(*parsed.fault, body);
  return std::move(parsed.value);
}

}  // namespace tandem::openai
