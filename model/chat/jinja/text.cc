#include "model/chat/jinja/text.h"

#include <algorithm>

namespace tandem::jinja {

Text Text::FromInput(std::string bytes) {
  Text text(std::move(bytes));
  text.Mark(true);
  return text;
}

void Text::AddRange(size_t begin, size_t end) {
  if (begin == end) return;
  if (!input_.empty() && input_.back().end == begin) {
    input_.back().end = end;
  } else {
    input_.push_back({begin, end});
  }
}

void Text::Append(const Text& other, size_t begin, size_t end) {
  const size_t offset = bytes_.size();
  const auto first = std::partition_point(other.input_.begin(), other.input_.end(),
                                          [&](const Range& range) { return range.end <= begin; });
  for (auto range = first; range != other.input_.end() && range->begin < end; ++range) {
    AddRange(offset + std::max(range->begin, begin) - begin,
             offset + std::min(range->end, end) - begin);
  }
  bytes_.append(other.bytes_, begin, end - begin);
}

Text Text::Slice(size_t begin, size_t end) const {
  Text slice;
  slice.Append(*this, begin, end);
  return slice;
}

void Text::Resize(size_t size) {
  bytes_.resize(std::min(size, bytes_.size()));
  while (!input_.empty() && input_.back().begin >= bytes_.size()) input_.pop_back();
  if (!input_.empty()) input_.back().end = std::min(input_.back().end, bytes_.size());
}

void Text::Mark(bool from_input) {
  if (!from_input) return;
  input_.clear();
  AddRange(0, bytes_.size());
}

}  // namespace tandem::jinja
