#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "model/chat/jinja/format_spec.h"
#include "model/chat/jinja/operators.h"
#include "model/chat/jinja/print.h"

namespace tandem::jinja {
namespace {

// Formats text % values as Python does.
class PercentFormatter {
 public:
  PercentFormatter(const Text& text, const Value& values, Machine& machine)
      : text_(text), values_(values), machine_(machine) {
    const List* list = values.list();
    if (list != nullptr && list->kind == List::Kind::kTuple) tuple_ = list;
  }

  absl::StatusOr<Value> Run() {
    const std::string_view format = text_.view();
    RETURN_IF_ERROR(machine_.SpendBytes(format.size()));
    size_t begin = 0;
    while (true) {
      const size_t percent = format.find('%', begin);
      out_.Append(text_, begin, std::min(percent, format.size()));
      if (percent == std::string_view::npos) break;
      begin = percent + 1;
      RETURN_IF_ERROR(WriteOne(begin));
    }
    // A value that can be subscripted may have more items than the format uses.
    const bool may_be_left =
        tuple_ == nullptr &&
        (values_.dict() != nullptr || values_.list() != nullptr || values_.undefined() != nullptr);
    const size_t given = tuple_ != nullptr ? tuple_->items.size() : 1;
    if (used_ < given && !may_be_left) {
      return InvalidArgument("not all arguments are used by the format '{}'", format);
    }
    return Value(std::move(out_));
  }

 private:
  absl::StatusOr<Value> NextValue() {
    if (tuple_ == nullptr && used_++ == 0) return values_;
    if (tuple_ != nullptr && used_ < tuple_->items.size()) return tuple_->items[used_++];
    return InvalidArgument("not enough arguments for the format '{}'", text_.view());
  }

  absl::Status WriteOne(size_t& at) {
    const std::string_view format = text_.view();
    FormatSpec spec;
    std::optional<Value> value;
    if (at < format.size() && format[at] == '(') {
      const size_t close = format.find(')', at);
      if (close == std::string_view::npos || values_.dict() == nullptr) {
        return InvalidArgument("the format '{}' wants a dict", format);
      }
      const Value* found = values_.dict()->Find(format.substr(at + 1, close - at - 1));
      if (found == nullptr) return InvalidArgument("the format '{}' has an unknown key", format);
      value = *found;
      at = close + 1;
    }
    for (;
         at < format.size() && std::string_view("-+ #0").find(format[at]) != std::string_view::npos;
         ++at) {
      if (format[at] == '-') spec.align = '<';
      if (format[at] == '+' || (format[at] == ' ' && spec.sign == 0)) spec.sign = format[at];
      if (format[at] == '#') spec.alternate = true;
      if (format[at] == '0') spec.fill = "0";
    }
    spec.width = ReadCount(format, at);
    if (at < format.size() && format[at] == '.') spec.precision = ReadCount(format, ++at);
    if (at >= format.size()) return InvalidArgument("the format '{}' is incomplete", format);
    spec.type = format[at++];
    RETURN_IF_ERROR(CheckSpec(spec));
    if (spec.type == '%') {
      out_.Append("%");
      return absl::OkStatus();
    }
    if (!value) {
      ASSIGN_OR_RETURN(value, NextValue());
    }
    return WriteValue(*value, spec);
  }

  absl::Status WriteValue(const Value& value, FormatSpec spec) {
    RETURN_IF_ERROR(machine_.SpendBytes(static_cast<size_t>(spec.width)));
    if (spec.type == 's' || spec.type == 'r') {
      spec.fill = " ";
      ASSIGN_OR_RETURN(Text text, spec.type == 's' ? Str(value, machine_) : Repr(value, machine_));
      out_.Append(Pad(Truncate(std::move(text), spec.precision), spec, '>'));
      return absl::OkStatus();
    }
    if (spec.align == '<') spec.fill = " ";
    const char align = spec.fill == "0" ? '=' : '>';
    if (std::string_view("fFeEgG").find(spec.type) != std::string_view::npos) {
      if (value.undefined() != nullptr) return UndefinedError(*value.undefined());
      if (!value.number()) return InvalidArgument("%{} wants a number", spec.type);
      ASSIGN_OR_RETURN(std::string digits, FormatFloat(*value.number(), spec));
      RETURN_IF_ERROR(machine_.Spend(digits.size()));  // long numbers are slow to print
      out_.Append(Pad(Text(std::move(digits)), spec, align));
      return absl::OkStatus();
    }
    if (std::string_view("diuxXo").find(spec.type) == std::string_view::npos) {
      return Unimplemented("the format %{} is not supported", spec.type);
    }
    if (value.undefined() != nullptr) return UndefinedError(*value.undefined());
    std::optional<int64_t> integer = value.integer();
    const bool decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
    if (!integer && decimal && value.real() && std::abs(*value.real()) < 9e18) {
      integer = static_cast<int64_t>(*value.real());
    }
    if (!integer) return InvalidArgument("%{} wants an integer", spec.type);
    if (spec.precision >= 0)
      return Unimplemented("%.{}{} is not supported", spec.precision, spec.type);
    ASSIGN_OR_RETURN(std::string digits, FormatInteger(*integer, spec));
    out_.Append(Pad(Text(std::move(digits)), spec, align));
    return absl::OkStatus();
  }

  const Text& text_;
  const Value& values_;
  Machine& machine_;
  const List* tuple_ = nullptr;
  size_t used_ = 0;
  Text out_;
};

}  // namespace

absl::StatusOr<Value> FormatPercent(const Text& text, const Value& values, Machine& machine) {
  return PercentFormatter(text, values, machine).Run();
}

}  // namespace tandem::jinja
