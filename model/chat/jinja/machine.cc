#include "model/chat/jinja/machine.h"

#include "absl/strings/cord.h"
#include "base/status.h"

namespace tandem::jinja {
namespace {

constexpr char kRaisedPayload[] = "tandem/raised-by-template";

}  // namespace

Machine::~Machine() {
  for (const auto& name_space : namespaces_) name_space->attributes.clear();
  for (const auto& loop : loops_) loop->Empty();
}

Value Machine::MakeNamespace(std::shared_ptr<Namespace> value) {
  namespaces_.push_back(value);
  return Value(std::move(value));
}

absl::Status Machine::OutOfSteps() const {
  return InvalidArgument("takes more than the {} steps allowed for this input", max_steps_);
}

absl::Status Raised(std::string_view text) {
  absl::Status status = InvalidArgument("{}", text);
  status.SetPayload(kRaisedPayload, absl::Cord());
  return status;
}

bool IsRaised(const absl::Status& status) { return status.GetPayload(kRaisedPayload).has_value(); }

}  // namespace tandem::jinja
