#include "model/chat/jinja/time_format.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/status.h"

namespace tandem::jinja {
namespace {

constexpr std::array<std::string_view, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                   "Thursday", "Friday", "Saturday"};
constexpr std::array<std::string_view, 12> kMonths = {
    "January", "February", "March",     "April",   "May",      "June",
    "July",    "August",   "September", "October", "November", "December"};

struct Moment {
  std::chrono::year_month_day date;
  std::chrono::hh_mm_ss<std::chrono::microseconds> clock;
  unsigned weekday;  // days since Sunday
  int day_of_year;   // days since 1 January
  int64_t seconds;   // since 1970
};

// A number of `width` digits or, with directives like %-d, of as few digits as it has.
std::string Number(int64_t value, int width, bool padded) {
  return padded ? fmt::format("{:0{}}", value, width) : fmt::format("{}", value);
}

std::string DateDirective(char letter, bool padded, const Moment& at) {
  const int year = static_cast<int>(at.date.year());
  const unsigned month = static_cast<unsigned>(at.date.month());
  const unsigned day = static_cast<unsigned>(at.date.day());
  const int weekday = static_cast<int>(at.weekday);
  switch (letter) {
    case 'a':
      return std::string(kDays[at.weekday].substr(0, 3));
    case 'A':
      return std::string(kDays[at.weekday]);
    case 'b':
    case 'h':
      return std::string(kMonths[month - 1].substr(0, 3));
    case 'B':
      return std::string(kMonths[month - 1]);
    case 'C':
      return Number(year / 100, 2, padded);
    case 'd':
      return Number(day, 2, padded);
    case 'e':
      return padded ? fmt::format("{:2}", day) : fmt::format("{}", day);
    case 'j':
      return Number(at.day_of_year + 1, 3, padded);
    case 'm':
      return Number(month, 2, padded);
    case 'u':
      return fmt::format("{}", weekday == 0 ? 7 : weekday);
    case 'w':
      return fmt::format("{}", weekday);
    case 'U':
      return Number((at.day_of_year + 7 - weekday) / 7, 2, padded);
    case 'W':
      return Number((at.day_of_year + 7 - (weekday + 6) % 7) / 7, 2, padded);
    case 'y':
      return Number(year % 100, 2, padded);
    default:  // directive Y
      return fmt::format("{}", year);
  }
}

std::string ClockDirective(char letter, bool padded, const Moment& at) {
  const auto hour = at.clock.hours().count();
  switch (letter) {
    case 'f':
      return fmt::format("{:06}", at.clock.subseconds().count());
    case 'H':
      return Number(hour, 2, padded);
    case 'I':
      return Number(hour % 12 == 0 ? 12 : hour % 12, 2, padded);
    case 'M':
      return Number(at.clock.minutes().count(), 2, padded);
    case 'p':
      return hour < 12 ? "AM" : "PM";
    case 's':
      return fmt::format("{}", at.seconds);
    case 'S':
      return Number(at.clock.seconds().count(), 2, padded);
    default:  // z, Z: a time without a zone has neither
      return "";
  }
}

// Directives that stand for several other ones.
constexpr std::pair<char, std::string_view> kShorthands[] = {
    {'c', "%a %b %e %H:%M:%S %Y"},
    {'D', "%m/%d/%y"},
    {'x', "%m/%d/%y"},
    {'F', "%Y-%m-%d"},
    {'r', "%I:%M:%S %p"},
    {'R', "%H:%M"},
    {'T', "%H:%M:%S"},
    {'X', "%H:%M:%S"},
    {'n', "\n"},
    {'t', "\t"},
};

absl::StatusOr<std::string> FormatMoment(std::string_view format, const Moment& at) {
  constexpr std::string_view kOfDates = "aAbBCdehjmuwUWyY";
  constexpr std::string_view kOfClocks = "fHIMpsSzZ";
  std::string text;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      text += format[i];
      continue;
    }
    const bool padded = i + 1 >= format.size() || format[i + 1] != '-';
    i += padded ? 1 : 2;
    const char letter = i < format.size() ? format[i] : ' ';
    const auto shorthand = std::find_if(std::begin(kShorthands), std::end(kShorthands),
                                        [&](const auto& each) { return each.first == letter; });
    if (shorthand != std::end(kShorthands)) {
      ASSIGN_OR_RETURN(const std::string whole, FormatMoment(shorthand->second, at));
      text += whole;
    } else if (letter == '%') {
      text += '%';
    } else if (kOfDates.find(letter) != std::string_view::npos) {
      text += DateDirective(letter, padded, at);
    } else if (kOfClocks.find(letter) != std::string_view::npos) {
      text += ClockDirective(letter, padded, at);
    } else {
      return InvalidArgument("strftime_now: the format '{}' is not supported", format);
    }
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> FormatTime(std::string_view format,
                                       std::chrono::system_clock::time_point time) {
  using std::chrono::days;
  using std::chrono::microseconds;
  const auto exact = std::chrono::floor<microseconds>(time);
  const auto day = std::chrono::floor<days>(exact);
  Moment at;
  at.date = std::chrono::year_month_day(day);
  at.clock = std::chrono::hh_mm_ss<microseconds>(exact - day);
  at.weekday = std::chrono::weekday(day).c_encoding();
  const auto new_year = std::chrono::sys_days(at.date.year() / std::chrono::January / 1);
  at.day_of_year = static_cast<int>((day - new_year).count());
  at.seconds = std::chrono::floor<std::chrono::seconds>(exact).time_since_epoch().count();

  return FormatMoment(format, at);
}

}  // namespace tandem::jinja
