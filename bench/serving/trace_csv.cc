#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "bench/serving/lengths.h"
#include "bench/serving/trace.h"

namespace tandem::loadgen {
namespace {

using Fields = std::vector<absl::string_view>;

Fields Split(std::string_view line) {
  Fields fields = absl::StrSplit(absl::string_view(line.data(), line.size()), ',');
  for (absl::string_view& field : fields) field = absl::StripAsciiWhitespace(field);
  return fields;
}

// The number that the digits [from, from + count) of `text` are, within [low, high]; -1 otherwise.
int DigitsAt(absl::string_view text, size_t from, size_t count, int low, int high) {
  int value = 0;
  for (size_t i = from; i < from + count; ++i) {
    if (text[i] < '0' || text[i] > '9') return -1;
    value = value * 10 + (text[i] - '0');
  }
  return value >= low && value <= high ? value : -1;
}

// Seconds since 1970 of "2023-11-16 18:17:03.9799600", also with "T" for the blank and with "Z" or
// "+00:00" at the end.
absl::StatusOr<double> ParseDateTime(absl::string_view text) {
  constexpr size_t kUpToSeconds = sizeof("2023-11-16 18:17:03") - 1;
  const absl::Status wrong = InvalidArgument(
      "\"{}\" is no time in UTC such as 2023-11-16 18:17:03.97996", std::string(text));
  absl::string_view rest = text;
  if (!absl::ConsumeSuffix(&rest, "+00:00")) absl::ConsumeSuffix(&rest, "Z");
  if (rest.size() < kUpToSeconds || rest[4] != '-' || rest[7] != '-' || rest[13] != ':' ||
      rest[16] != ':' || (rest[10] != ' ' && rest[10] != 'T')) {
    return wrong;
  }
  const int year = DigitsAt(rest, 0, 4, 1970, 9999);
  const int month = DigitsAt(rest, 5, 2, 1, 12);
  const int day = DigitsAt(rest, 8, 2, 1, 31);
  const int hour = DigitsAt(rest, 11, 2, 0, 23);
  const int minute = DigitsAt(rest, 14, 2, 0, 59);
  const int second = DigitsAt(rest, 17, 2, 0, 60);
  if (year < 0 || month < 0 || day < 0 || hour < 0 || minute < 0 || second < 0) return wrong;
  const std::chrono::year_month_day date(std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day)));
  if (!date.ok()) return wrong;
  double fraction = 0;
  rest.remove_prefix(kUpToSeconds);
  if (!rest.empty()) {
    if (rest[0] != '.' || rest.size() < 2) return wrong;
    double unit = 0.1;
    for (const char digit : rest.substr(1)) {
      if (digit < '0' || digit > '9') return wrong;
      fraction += unit * (digit - '0');
      unit /= 10;
    }
  }
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  return static_cast<double>(days) * 86400 + hour * 3600 + minute * 60 + second + fraction;
}

absl::StatusOr<int32_t> ParseTokens(absl::string_view text) {
  double value = 0;  // some files have 12.0
  if (!absl::SimpleAtod(text, &value) || !(value >= 0 && value <= kMaxLength) ||
      value != std::floor(value)) {
    return InvalidArgument("\"{}\" is no number of tokens from 0 to {}", std::string(text),
                           kMaxLength);
  }
  return static_cast<int32_t>(value);
}

absl::StatusOr<size_t> ColumnOf(const Fields& header, absl::string_view name) {
  for (size_t i = 0; i < header.size(); ++i) {
    if (absl::EqualsIgnoreCase(header[i], name)) return i;
  }
  return InvalidArgument("the header has no column \"{}\"", std::string(name));
}

}  // namespace

absl::StatusOr<CsvRowParser> CsvRowParser::Create(TraceFormat format, std::string_view header) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (header.starts_with(kByteOrderMark)) header.remove_prefix(kByteOrderMark.size());
  const Fields names = Split(header);
  const bool azure = format == TraceFormat::kAzure;
  CsvRowParser parser;
  parser.format_ = format;
  ASSIGN_OR_RETURN(parser.time_column_, ColumnOf(names, "Timestamp"));
  ASSIGN_OR_RETURN(parser.input_column_,
                   ColumnOf(names, azure ? "ContextTokens" : "Request tokens"));
  ASSIGN_OR_RETURN(parser.output_column_,
                   ColumnOf(names, azure ? "GeneratedTokens" : "Response tokens"));
  return parser;
}

absl::StatusOr<TraceRequest> CsvRowParser::Parse(std::string_view line) const {
  const Fields fields = Split(line);
  if (fields.size() <= std::max({time_column_, input_column_, output_column_})) {
    return InvalidArgument("it has only {} columns", fields.size());
  }
  TraceRequest row;
  const absl::string_view time = fields[time_column_];
  if (format_ == TraceFormat::kAzure) {
    ASSIGN_OR_RETURN(row.seconds, ParseDateTime(time));
  } else if (!absl::SimpleAtod(time, &row.seconds) || !std::isfinite(row.seconds)) {
    return InvalidArgument("\"{}\" is no time in seconds", std::string(time));
  }
  ASSIGN_OR_RETURN(row.input_tokens, ParseTokens(fields[input_column_]));
  ASSIGN_OR_RETURN(row.output_tokens, ParseTokens(fields[output_column_]));
  return row;
}

}  // namespace tandem::loadgen
