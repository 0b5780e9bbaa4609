#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem::jinja {

// A string with the byte ranges that came from a request. Whatever is made of a text keeps its
// ranges; where a change does not say which bytes come from where, all of the result is marked.
class Text {
 public:
  struct Range {
    size_t begin;
    size_t end;
  };

  Text() = default;
  explicit Text(std::string bytes) : bytes_(std::move(bytes)) {}
  static Text FromInput(std::string bytes);

  const std::string& bytes() const { return bytes_; }
  std::string_view view() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // The ranges that came from a request: sorted, disjoint, not adjacent and not empty.
  std::span<const Range> input() const { return input_; }
  bool has_input() const { return !input_.empty(); }

  void Append(std::string_view written_by_template) { bytes_.append(written_by_template); }
  void Append(const Text& other) { Append(other, 0, other.size()); }
  void Append(const Text& other, size_t begin, size_t end);
  Text Slice(size_t begin, size_t end) const;
  void Resize(size_t size);
  // Marks all of the text as coming from a request if `from_input`.
  void Mark(bool from_input);

 private:
  void AddRange(size_t begin, size_t end);

  std::string bytes_;
  std::vector<Range> input_;
};

}  // namespace tandem::jinja
