#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "nlohmann/json.hpp"

// Between JSON text and documents. The parser and the writer of nlohmann are templates, which the compiler
// would instantiate in every file that calls them, which takes it two to four seconds; these functions are
// compiled once. They throw nothing.
namespace tandem {

// JSON whose objects keep the order of their fields.
using OrderedJson = nlohmann::ordered_json;

// Accepts any bytes. The value is_discarded() where the text is not one JSON value. The depth is not bounded, and
// copies of a document recurse: a client's text goes to ParseOrderedJson.
nlohmann::json ParseJson(std::string_view text);

bool IsJson(std::string_view text);

// The text of `json`, on one line or, with an `indent`, a field or element per line with so many spaces for
// each level. Ill-formed UTF-8 becomes U+FFFD.
std::string JsonText(const nlohmann::json& json, int indent = -1);
std::string JsonText(const OrderedJson& json, int indent = -1);
// As a string of JSON, in quotes.
std::string JsonString(std::string_view text);

// What an object may do that names a field twice. Parsers differ in which of the two they take.
enum class RepeatedFields : uint8_t { kLastCounts, kRefused };

struct JsonBounds {
  size_t depth = 64;                                       // of arrays and objects
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
ParsedJson ParseOrderedJson(std::string_view text, const JsonBounds& bounds = {});

}  // namespace tandem
