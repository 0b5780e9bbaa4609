#pragma once

#include <fstream>
#include <string>

#include "fmt/format.h"

namespace tandem {

// The processor of this machine and the number of its cores, as reports of measurements name the
// machine.
inline std::string MachineName() {
  std::ifstream file("/proc/cpuinfo");
  int cores = 0;
  std::string model = "unknown processor";
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("processor")) ++cores;
    const size_t value = line.find(": ");
    if (line.starts_with("model name") && value != std::string::npos)
      model = line.substr(value + 2);
  }
  return fmt::format("{}, {} cores", model, cores);
}

}  // namespace tandem
