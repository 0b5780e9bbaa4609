// Values of the headers Authorization and Accept, which anybody may send.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "server/access/access_control.h"
#include "server/admin/exposition.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view value(reinterpret_cast<const char*>(data), size);
  if (const auto secret = tandem::BearerSecret(value)) {
    TANDEM_CHECK(value.ends_with(*secret), "a secret that was not given");
    TANDEM_CHECK(value.size() > secret->size(), "a secret without the word before it");
  }
  TANDEM_CHECK(!tandem::ContentType(tandem::FormatFor(value)).empty(), "a page without a type");
  return 0;
}
