#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "nlohmann/json.hpp"

// Converts between JSON text and documents. The parser and the writer of nlohmann are templates,
// which take the compiler two to four seconds in every file that calls them; these functions are
// compiled once. They throw nothing.
namespace tandem {

// JSON whose objects keep the order of their fields.
using OrderedJson = nlohmann::ordered_json;

// Parses JSON of any depth. Accepts any bytes: the value is_discarded() where the text is not one
// JSON value. Copies of a document recurse, so the text of a client goes to ParseOrderedJson, which
// bounds the depth.
nlohmann::json ParseJson(std::string_view text);

bool IsJson(std::string_view text);

// The text of `json`, on one line or, with an `indent`, a field or element per line with so many
// spaces for each level. Ill-formed UTF-8 becomes U+FFFD.
std::string JsonText(const nlohmann::json& json, int indent = -1);
std::string JsonText(const OrderedJson& json, int indent = -1);
// `text` as a JSON string, in quotes.
std::string JsonString(std::string_view text);

// What happens when an object names a field twice. Parsers differ in which of the two values they
// take.
enum class RepeatedFields : uint8_t { kLastCounts, kRefused };

struct JsonBounds {
  size_t depth = 64;                                       // levels of arrays and objects
  size_t containers = std::numeric_limits<size_t>::max();  // most arrays and objects in a text
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
  size_t position = 0;  // offset of the byte at fault; for kSyntax and kNumberTooLarge
  std::string field;    // the name that an object has twice; for kRepeatedField
};

struct ParsedJson {
  OrderedJson value;               // null when there is a fault
  std::optional<JsonFault> fault;  // the first fault; nothing when the text was parsed
};

// Parses JSON that others sent. Accepts any bytes. Takes time that is linear in them, which the
// parser of nlohmann does not: it looks through all fields of an object for each field that it
// adds.
ParsedJson ParseOrderedJson(std::string_view text, const JsonBounds& bounds = {});

}  // namespace tandem
