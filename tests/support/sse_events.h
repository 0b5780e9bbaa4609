#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace tandem {

// An event of text/event-stream that has a name.
struct SseEventParts {
  std::string name;
  nlohmann::ordered_json data;
};

// The events of a whole stream. Comments are left out.
inline std::vector<SseEventParts> SseEventsIn(std::string_view stream) {
  std::vector<SseEventParts> events;
  while (!stream.empty()) {
    const size_t end = stream.find("\n\n");
    if (end == std::string_view::npos) {
      ADD_FAILURE() << "an event without an end: " << stream;
      return events;
    }
    const std::string_view event = stream.substr(0, end);
    stream.remove_prefix(end + 2);
    if (event.starts_with(":")) continue;
    const size_t line = event.find("\ndata: ");
    if (!event.starts_with("event: ") || line == std::string_view::npos) {
      ADD_FAILURE() << "no event with a name: " << event;
      return events;
    }
    events.push_back({.name = std::string(event.substr(7, line - 7)),
                      .data = ParseOrderedJson(event.substr(line + 7)).value});
  }
  return events;
}

}  // namespace tandem
