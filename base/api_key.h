#pragma once

#include <cstdlib>
#include <string>

namespace tandem {

// What clients send as the header or metadata "authorization": "Bearer " and the key that the environment
// has as TANDEM_API_KEY; empty where it has none. A flag would show the key to every user of the machine.
inline std::string AuthorizationFromEnvironment() {
  const char* const key = std::getenv("TANDEM_API_KEY");
  return key == nullptr || *key == '\0' ? std::string() : std::string("Bearer ") + key;
}

}  // namespace tandem
