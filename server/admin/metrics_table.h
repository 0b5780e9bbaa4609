#pragma once

#include <span>
#include <string_view>

#include "google/protobuf/message.h"

namespace tandem {

// The label of samples that the router and each worker have alike: "router", or the worker's name. It
// takes the place of all other labels.
inline constexpr std::string_view kServerLabel = "server";

// One sample of the metrics page, made of one field of a message in tandem/v1/telemetry.proto or of
// GetStatusResponse. A metric whose name ends in _total is a counter, every other one is a gauge.
// Rows of the same name follow one another and differ in `label_value`; the first of them has the
// help text.
struct Metric {
  std::string_view name;
  // "Message.field", where the field is a number or a bool; "Message" alone where `value` computes
  // the sample from several fields.
  std::string_view source;
  std::string_view help;
  // A label besides those of the message; empty: none. kServerLabel has no `label_value` here.
  std::string_view label_name = {};
  std::string_view label_value = {};
  double (*value)(const google::protobuf::Message& message) = nullptr;
};

// All samples, in the order of the page.
std::span<const Metric> Metrics();

}  // namespace tandem
