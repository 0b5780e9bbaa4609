#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fmt/core.h"

namespace tandem {

// One `key=value` of a line of the log.
struct LogField {
  std::string key;
  std::string value;
  bool is_json = false;  // a number or a truth value: the value is JSON as it stands
};

// A line of the log, taken apart.
struct LogRecord {
  std::string text;     // the whole line
  std::string message;  // what is left of it without the fields
  std::vector<LogField> fields;
};

// Fills in a line's format. Fields are found in the format, which is part of the program, and never
// in what is filled in: `key={}` and `key="{}"` at the beginning or after a space begin a field,
// which ends at the next space, or quotation mark, of the format. A field whose value is an empty
// text or NaN without quotation marks is left out of the text, too.
LogRecord ToLogRecord(fmt::string_view format, fmt::format_args args);

// What a log line in JSON has besides its LogRecord.
struct LogOrigin {
  std::string time;  // RFC 3339
  std::string_view level;
  std::string process;
  std::string thread;
};

// One JSON object without a line feed: time, level, process, thread, message, then the fields.
// Bytes that are no UTF-8 are replaced. A field that has one of these names gets "_" behind it.
std::string ToJsonLine(const LogOrigin& origin, const LogRecord& record);

}  // namespace tandem
