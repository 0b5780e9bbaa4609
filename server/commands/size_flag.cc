#include "server/commands/size_flag.h"

#include <string>

#include "fmt/format.h"

namespace tandem {

CLI::Validator SizeFlag(Kilo kilo) {
  const CLI::AsSizeValue sizes(kilo == Kilo::k1000);
  const auto parse = [sizes](std::string& text) -> std::string {
    if (text.find('-') == std::string::npos) return sizes(text);
    return fmt::format("{} is no size: give a number from 0 on, with or without a unit, as 512MiB",
                       text);
  };
  return CLI::Validator(parse, sizes.get_description());
}

}  // namespace tandem
