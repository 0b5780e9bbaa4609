#include "server/commands/kv_flags.h"

#include <string>
#include <vector>

#include "base/kv_quality.h"
#include "base/token_eviction.h"

namespace tandem {

CLI::Validator KvQualityText() {
  return CLI::IsMember(std::vector<std::string>(kKvQualityNames.begin(), kKvQualityNames.end()));
}

CLI::Validator TokenEvictionText() {
  const auto check = [](const std::string& text) -> std::string {
    if (text == "none") return "";
    return std::string(ParseTokenEviction(text).status().message());
  };
  return {check, "none|POLICY:RATIO"};
}

}  // namespace tandem
