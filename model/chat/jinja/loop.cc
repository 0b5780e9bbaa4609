#include "model/chat/jinja/loop.h"

#include "base/status.h"
#include "model/chat/jinja/operators.h"

namespace tandem::jinja {

absl::StatusOr<std::optional<Value>> Loop::Draw() {
  if (filtering_) {
    return InvalidArgument("the filter of a loop cannot look ahead in its own loop");
  }
  while (drawn_ < items_.size()) {
    Value item = items_[drawn_++];
    if (!filter_) return std::optional<Value>(std::move(item));
    filtering_ = true;
    const absl::StatusOr<bool> filtered = filter_(item);
    filtering_ = false;
    ASSIGN_OR_RETURN(const bool taken, filtered);
    if (taken) return std::optional<Value>(std::move(item));
  }
  return std::optional<Value>();
}

absl::Status Loop::Peek() {
  if (peeked_) return absl::OkStatus();
  ASSIGN_OR_RETURN(after_, Draw());
  peeked_ = true;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Value>> Loop::Next() {
  RETURN_IF_ERROR(Peek());
  peeked_ = false;
  if (!after_) return std::optional<Value>();
  ++index0_;
  previous_ = std::move(current_);
  current_ = std::move(after_);
  after_.reset();
  return current_;
}

void Loop::Empty() {
  items_.clear();
  filter_ = nullptr;
  current_.reset();
  previous_.reset();
  after_.reset();
  last_changed_.reset();
}

absl::StatusOr<int64_t> Loop::CountAll() {
  RETURN_IF_ERROR(Peek());
  if (!after_) return index0_ + 1;
  if (filter_) {
    std::vector<Value> rest;
    while (true) {
      ASSIGN_OR_RETURN(std::optional<Value> item, Draw());
      if (!item) break;
      rest.push_back(*std::move(item));
    }
    items_ = std::move(rest);
    drawn_ = 0;
    filter_ = nullptr;
  }
  return index0_ + 2 + static_cast<int64_t>(items_.size() - drawn_);
}

absl::StatusOr<Value> Loop::Attribute(std::string_view name) {
  if (name == "index") return Value(index0_ + 1);
  if (name == "index0") return Value(index0_);
  if (name == "first") return Value(index0_ == 0);
  if (name == "depth") return Value(int64_t{1});
  if (name == "depth0") return Value(int64_t{0});
  if (name == "last" || name == "nextitem") {
    RETURN_IF_ERROR(Peek());
    if (name == "last") return Value(!after_.has_value());
    return after_ ? *after_ : Value::MakeUndefined("there is no next item");
  }
  if (name == "previtem") {
    return previous_ ? *previous_ : Value::MakeUndefined("there is no previous item");
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    ASSIGN_OR_RETURN(const int64_t length, CountAll());
    if (name == "length") return Value(length);
    return Value(name == "revindex" ? length - index0_ : length - index0_ - 1);
  }
  return Value::MakeUndefined(fmt::format("'loop' has no attribute '{}'", name));
}

absl::StatusOr<Value> Loop::Cycle(const Arguments& arguments) const {
  if (!arguments.named.empty() || arguments.positional.empty()) {
    return InvalidArgument("loop.cycle wants the values to cycle through");
  }
  const auto count = static_cast<int64_t>(arguments.positional.size());
  return arguments.positional[static_cast<size_t>(index0_ % count)];
}

absl::StatusOr<Value> Loop::Changed(const Arguments& arguments, Machine& machine) {
  bool same = last_changed_ && last_changed_->size() == arguments.positional.size();
  for (size_t i = 0; same && i < arguments.positional.size(); ++i) {
    ASSIGN_OR_RETURN(same, AreEqual((*last_changed_)[i], arguments.positional[i], machine));
  }
  if (!same) last_changed_ = arguments.positional;
  return Value(!same);
}

}  // namespace tandem::jinja
