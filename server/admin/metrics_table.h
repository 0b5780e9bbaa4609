#pragma once

#include <span>
#include <string_view>

#include "google/protobuf/message.h"

namespace tandem {

// The label of metrics that both the router and each worker have: its value is "router", or the
// worker's name. It takes the place of all other labels.
inline constexpr std::string_view kServerLabel = "server";

// One row of the metrics table: a sample that is made of one field of a message in
// tandem/v1/telemetry.proto or of GetStatusResponse. A metric whose name ends in _total is a
// counter, every other one is a gauge. Rows of the same name follow one another and differ in
// `label_value`; the first of them has the help text.
struct Metric {
  std::string_view name;
  // The field that the sample comes from: "Message.field", where the field is a number or a bool;
  // "Message" alone where `value` computes the sample from several fields.
  std::string_view source;
  std::string_view help;
  // The name of a label besides those of the message; empty: none. For kServerLabel, `label_value`
  // stays empty.
  std::string_view label_name = {};
  std::string_view label_value = {};
  double (*value)(const google::protobuf::Message& message) = nullptr;
};

// All rows of the metrics table, in the order of the page.
std::span<const Metric> Metrics();

}  // namespace tandem
