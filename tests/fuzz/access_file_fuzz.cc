// Access files of foreign bytes: keys and limits of tenants.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/access/api_keys.h"

// What is accepted comes back as it was written, and no text that is not a secret opens it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto file = tandem::AccessFile::Parse(text);
  if (!file.ok()) {
    TANDEM_CHECK(!file.status().message().empty(), "a refusal without a reason");
    return 0;
  }
  const std::string written = file->ToJson();
  const auto again = tandem::AccessFile::Parse(written);
  TANDEM_CHECK(again.ok(), "what was written is refused");
  TANDEM_CHECK(again->ToJson() == written, "what was written reads otherwise");
  TANDEM_CHECK(file->Find(text) == nullptr, "a file that is its own secret");
  for (const tandem::ApiKey& key : file->keys()) {
    TANDEM_CHECK(!key.id.empty() && !key.scopes.empty(), "a key without a name or a purpose");
    TANDEM_CHECK(file->Find(key.sha256) == nullptr, "the hash of a secret is taken for it");
  }
  return 0;
}
