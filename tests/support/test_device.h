#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <string>

namespace tandem {

// The device that tests of models and engines run on: what TANDEM_TEST_DEVICE names, or the CPU.
inline std::string TestDevice() {
  const char* name = std::getenv("TANDEM_TEST_DEVICE");
  return name == nullptr ? "cpu" : name;
}

// How many of `all` tokens of an output a test compares: no more than TANDEM_TEST_TOKENS says. The
// emulated GPU takes a tenth of a second for each token of the sample model.
inline size_t TestTokens(size_t all) {
  const char* most = std::getenv("TANDEM_TEST_TOKENS");
  return most == nullptr ? all : std::min<size_t>(all, std::strtoul(most, nullptr, 10));
}

}  // namespace tandem
