#include "server/commands/number_flag.h"

#include <cmath>
#include <string>

#include "absl/strings/numbers.h"
#include "fmt/format.h"

namespace tandem {

CLI::Validator Positive() {
  const auto check = [](const std::string& text) -> std::string {
    double value = 0;
    if (absl::SimpleAtod(text, &value) && value > 0 && std::isfinite(value)) return {};
    return fmt::format("{} is no number above 0", text);
  };
  return CLI::Validator(check, "POSITIVE");
}

CLI::Validator NotNegative() {
  const auto check = [](const std::string& text) -> std::string {
    double value = 0;
    if (absl::SimpleAtod(text, &value) && value >= 0) return {};
    return fmt::format("{} is no number from 0 on", text);
  };
  return CLI::Validator(check, "NONNEGATIVE");
}

CLI::Validator SecondsOrOff(double most) {
  const auto check = [most](std::string& text) -> std::string {
    if (text == "off") text = "0";
    double value = 0;
    if (absl::SimpleAtod(text, &value) && value >= 0 && value <= most) return {};
    return fmt::format("{} is neither off nor a number of seconds up to {}", text, most);
  };
  return CLI::Validator(check, "SECONDS|off");
}

}  // namespace tandem
