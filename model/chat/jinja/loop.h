#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "model/chat/jinja/machine.h"
#include "model/chat/jinja/value.h"

namespace tandem::jinja {

// The items of a for loop and its variable `loop`. Items are drawn one at a time, and further ones
// only when the template asks for `loop.last` and the like, because the filter of a loop may depend
// on what the loop's body does.
class Loop final : public Kept {
 public:
  // Whether the loop's filter takes an item.
  using Filter = std::function<absl::StatusOr<bool>(const Value&)>;

  Loop(std::vector<Value> items, Filter filter)
      : items_(std::move(items)), filter_(std::move(filter)) {}

  // Moves to the next item. Returns nothing at the end.
  absl::StatusOr<std::optional<Value>> Next();
  void Empty() override;

  // The value of `loop.name`; undefined where there is no such attribute.
  absl::StatusOr<Value> Attribute(std::string_view name);
  // The template's functions loop.cycle and loop.changed.
  absl::StatusOr<Value> Cycle(const Arguments& arguments) const;
  absl::StatusOr<Value> Changed(const Arguments& arguments, Machine& machine);

 private:
  // Takes the next item that the filter lets through. INVALID_ARGUMENT when the filter itself asks
  // for an item, by a variable `loop` that the template kept.
  absl::StatusOr<std::optional<Value>> Draw();
  absl::Status Peek();
  absl::StatusOr<int64_t> CountAll();

  std::vector<Value> items_;
  Filter filter_;
  bool filtering_ = false;  // whether the filter is running
  size_t drawn_ = 0;
  int64_t index0_ = -1;
  std::optional<Value> current_;
  std::optional<Value> previous_;
  // The item after the current one, once it has been asked for.
  bool peeked_ = false;
  std::optional<Value> after_;
  std::optional<std::vector<Value>> last_changed_;
};

}  // namespace tandem::jinja
