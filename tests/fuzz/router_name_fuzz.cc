// Values of --router, and parameter files of the policy `classic`.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "server/assembly/classic_parameters.h"
#include "server/assembly/router_directory.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto name = tandem::ParseRouterName(text); name.ok()) {
    TANDEM_CHECK(name->text == text && !name->host.empty(), "a router that was not given");
    TANDEM_CHECK(name->follows_dns == text.starts_with("dns:"), "a name that is followed unasked");
    if (name->follows_dns) {
      TANDEM_CHECK(name->host.find('/') == std::string::npos, "a path is looked up");
    }
  }
  if (const auto classic = tandem::ParseClassicParameters(text); classic.ok()) {
    TANDEM_CHECK(std::isfinite(classic->beta_ms) && classic->beta_ms >= 0, "no time");
  }
  return 0;
}
