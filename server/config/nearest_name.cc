#include "server/config/nearest_name.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "fmt/format.h"

namespace tandem {
namespace {

constexpr size_t kLongestName = 64;  // flags are shorter; comparing takes quadratic time

// Writes a name as flags are written: lower case, with - in place of _, and without leading dashes.
std::string AsFlag(std::string_view given) {
  given.remove_prefix(std::min(given.find_first_not_of('-'), given.size()));
  std::string name(given.substr(0, kLongestName));
  std::ranges::transform(name, name.begin(), [](unsigned char c) {
    return c == '_' ? '-' : static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
  });
  return name;
}

// The optimal string alignment distance of two names. rows[i][j]: the distance between the first i
// letters of `a` and the first j of `b`.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> rows(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    rows[i][0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = rows[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      rows[i][j] = std::min({rows[i - 1][j] + 1, rows[i][j - 1] + 1, change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
      }
    }
  }
  return rows[a.size()][b.size()];
}

}  // namespace

std::string NearestName(std::string_view given, const std::set<std::string>& known) {
  const std::string name = AsFlag(given);
  std::string best;
  size_t least = std::max<size_t>(2, name.size() / 3) + 1;
  for (const std::string& one : known) {
    const size_t distance = Distance(name, one);
    if (distance >= least) continue;
    least = distance;
    best = one;
  }
  return best;
}

std::string DidYouMean(std::string_view given, const std::set<std::string>& known,
                       std::string_view otherwise) {
  const std::string nearest = NearestName(given, known);
  if (nearest.empty()) return std::string(otherwise);
  return fmt::format(": did you mean \"{}\"?", nearest);
}

}  // namespace tandem
