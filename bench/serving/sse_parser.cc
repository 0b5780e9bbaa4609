#include "bench/serving/sse_parser.h"

#include <utility>

namespace tandem::loadgen {

SseParser::SseParser(std::function<void(std::string_view)> on_data)
    : on_data_(std::move(on_data)) {}

void SseParser::Feed(std::string_view bytes) {
  for (const char byte : bytes) {
    const bool second_half = byte == '\n' && std::exchange(after_return_, false);
    if (second_half) continue;
    after_return_ = byte == '\r';
    if (byte == '\n' || byte == '\r') {
      EndLine();
    } else {
      line_ += byte;
    }
  }
}

// An empty line ends the event.
void SseParser::EndLine() {
  constexpr std::string_view kField = "data";
  const std::string line = std::exchange(line_, {});
  if (line.empty()) {
    if (std::exchange(has_data_, false)) on_data_(std::exchange(data_, {}));
    return;
  }
  std::string_view value(line);
  if (!value.starts_with(kField)) return;
  value.remove_prefix(kField.size());
  if (!value.empty()) {
    if (value.front() != ':') return;  // a longer name
    value.remove_prefix(1);
    if (value.starts_with(' ')) value.remove_prefix(1);
  }
  if (has_data_) data_ += '\n';
  data_ += value;
  has_data_ = true;
}

}  // namespace tandem::loadgen
