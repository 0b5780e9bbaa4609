#pragma once

#include <algorithm>
#include <ctime>
#include <fstream>
#include <string>
#include <vector>

#include "base/status.h"
#include "nlohmann/json.hpp"

namespace tandem {

// What programs that measure make of their measurements.

// 0 of none.
inline double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The processor and how many cores of it.
inline std::string MachineName() {
  std::ifstream file("/proc/cpuinfo");
  int cores = 0;
  std::string model;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("processor")) ++cores;
    if (line.starts_with("model name")) model = line.substr(line.find(':') + 2);
  }
  return fmt::format("{}, {} cores", model, cores);
}

inline std::string Today() {
  const std::time_t now = std::time(nullptr);
  char text[sizeof("2000-01-01")];
  std::strftime(text, sizeof(text), "%Y-%m-%d", std::gmtime(&now));
  return text;
}

// As it was typed, but for the folder of the program.
inline std::string CommandLine(int argc, char** argv) {
  std::string line(argv[0]);
  line = line.substr(line.rfind('/') + 1);
  for (int i = 1; i < argc; ++i) line += std::string(" ") + argv[i];
  return line;
}

// Nowhere when the path is empty.
inline absl::Status WriteJson(const nlohmann::json& result, const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  std::ofstream file(path);
  file << result.dump(1) << '\n';
  return file.flush() ? absl::OkStatus() : Internal("{} cannot be written", path);
}

}  // namespace tandem
