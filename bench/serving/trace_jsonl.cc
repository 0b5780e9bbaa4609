#include <cmath>

#include "base/json.h"
#include "base/status.h"
#include "bench/serving/lengths.h"
#include "bench/serving/trace.h"
#include "nlohmann/json.hpp"

namespace tandem::loadgen {
namespace {

using SortedJson = nlohmann::json;

absl::StatusOr<double> NumberIn(const SortedJson& row, const char* name) {
  const auto found = row.find(name);
  if (found == row.end() || !found->is_number()) {
    return InvalidArgument("it has no number \"{}\"", name);
  }
  const auto value = found->get<double>();
  if (!std::isfinite(value)) return InvalidArgument("its \"{}\" is not finite", name);
  return value;
}

absl::StatusOr<int32_t> LengthIn(const SortedJson& row, const char* name) {
  ASSIGN_OR_RETURN(const double value, NumberIn(row, name));
  if (value < 0 || value > kMaxLength || value != std::floor(value)) {
    return InvalidArgument("its \"{}\" is {}: a number of tokens from 0 to {} is needed", name,
                           value, kMaxLength);
  }
  return static_cast<int32_t>(value);
}

}  // namespace

absl::StatusOr<TraceRequest> ParseJsonRow(std::string_view line, double seconds_per_unit) {
  const SortedJson row = ParseJson(line);
  if (!row.is_object()) return InvalidArgument("it is no JSON object");
  TraceRequest request;
  ASSIGN_OR_RETURN(const double time, NumberIn(row, "timestamp"));
  request.seconds = time * seconds_per_unit;
  ASSIGN_OR_RETURN(request.input_tokens, LengthIn(row, "input_length"));
  ASSIGN_OR_RETURN(request.output_tokens, LengthIn(row, "output_length"));
  const auto ids = row.find("hash_ids");
  if (ids == row.end()) return request;
  if (!ids->is_array()) return InvalidArgument("its \"hash_ids\" is no array");
  for (const SortedJson& id : *ids) {
    if (!id.is_number_integer()) return InvalidArgument("its \"hash_ids\" has more than integers");
    request.hash_ids.push_back(static_cast<uint64_t>(id.get<int64_t>()));
  }
  return request;
}

}  // namespace tandem::loadgen
