#pragma once

#include <cstdlib>
#include <string>

namespace tandem {

// The device that tests of models and engines run on: what TANDEM_TEST_DEVICE names, or the CPU.
inline std::string TestDevice() {
  const char* name = std::getenv("TANDEM_TEST_DEVICE");
  return name == nullptr ? "cpu" : name;
}

}  // namespace tandem
