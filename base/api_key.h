#pragma once

#include <cstdlib>
#include <string>

namespace tandem {

// The value of the header or metadata "authorization" that clients send: "Bearer " and the key in
// the environment variable TANDEM_API_KEY; empty where the variable is not set. A command line flag
// would show the key to every user of the machine.
inline std::string AuthorizationFromEnvironment() {
  const char* const key = std::getenv("TANDEM_API_KEY");
  return key == nullptr || *key == '\0' ? std::string() : std::string("Bearer ") + key;
}

}  // namespace tandem
