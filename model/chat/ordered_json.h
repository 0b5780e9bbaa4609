#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "nlohmann/json.hpp"

namespace tandem {

// JSON whose objects keep the order of their fields, which templates print.
using OrderedJson = nlohmann::ordered_json;

// What an object may do that names a field twice. Parsers differ in which of the two they take.
enum class RepeatedFields : uint8_t { kLastCounts, kRefused };

struct JsonBounds {
  size_t depth;                                            // of arrays and objects
  size_t containers = std::numeric_limits<size_t>::max();  // arrays and objects
  RepeatedFields repeated = RepeatedFields::kLastCounts;
};

struct JsonFault {
  enum class Kind : uint8_t {
    kSyntax,
    kNumberTooLarge,
    kRepeatedField,
    kTooDeep,
    kTooManyContainers,
  };
  Kind kind = Kind::kSyntax;
  size_t position = 0;  // of the byte at fault, for the first two kinds
  std::string field;    // that is named twice
};

struct ParsedJson {
  OrderedJson value;               // null with a fault
  std::optional<JsonFault> fault;  // the first one, where the text is not taken
};

// Accepts any bytes. Takes time that is linear in them, which the parser of nlohmann does not: it
// looks through all fields of an object for each that it adds.
ParsedJson ParseOrderedJson(std::string_view text, const JsonBounds& bounds);

}  // namespace tandem
