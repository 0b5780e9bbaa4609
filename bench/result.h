#pragma once

#include <algorithm>
#include <cmath>
#include <ctime>
#include <fstream>
#include <string>
#include <vector>

#include "base/machine_name.h"
#include "base/status.h"
#include "nlohmann/json.hpp"

namespace tandem {

// What programs that measure make of their measurements.

// 0 of none.
inline double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t upper = values.size() / 2;
  return values.size() % 2 != 0 ? values[upper] : (values[upper - 1] + values[upper]) / 2;
}

// Where the true median lies with 95% confidence, whatever the distribution: the two values as far
// from the middle as a fair coin's count is from n / 2. The whole range of few values.
struct MedianInterval {
  double low = 0;
  double high = 0;
};
inline MedianInterval IntervalOfMedian(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  const double reach = 1.96 * std::sqrt(n) / 2;
  const auto last = static_cast<ptrdiff_t>(values.size()) - 1;
  const auto at = [&values, last](double rank) {
    return values[static_cast<size_t>(
        std::clamp<ptrdiff_t>(static_cast<ptrdiff_t>(rank), 0, last))];
  };
  return {at(std::floor(n / 2 - reach)), at(std::ceil(n / 2 + reach))};
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
