#include "bench/serving/sweep_result.h"

namespace tandem::loadgen {

double NumberIn(const nlohmann::ordered_json& result, std::string_view name,
                std::string_view within) {
  const auto found = result.find(name);
  if (found == result.end()) return 0;
  if (!within.empty()) return found->is_object() ? NumberIn(*found, within) : 0;
  return found->is_number() ? found->get<double>() : 0;
}

}  // namespace tandem::loadgen
