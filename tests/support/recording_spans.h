#pragma once

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tracing/span.h"

namespace tandem {

// Keeps the spans that a test's requests end with. One thread at a time.
class RecordingSpans final : public SpanConsumer {
 public:
  void Take(std::vector<Span> spans) override {
    for (Span& span : spans) all.push_back(std::move(span));
  }

  // The only span of this name.
  const Span& Only(const std::string& name) const {
    const Span* found = nullptr;
    int count = 0;
    for (const Span& span : all) {
      if (span.name != name) continue;
      found = &span;
      ++count;
    }
    EXPECT_EQ(count, 1) << name;
    static const Span& none = *new Span();
    return found == nullptr ? none : *found;
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const Span& span : all) names.push_back(span.name);
    return names;
  }

  std::vector<Span> all;
};

// The attribute of this name, or null.
template <typename T>
const T* FindAttribute(const Span& span, const std::string& key) {
  for (const SpanAttribute& attribute : span.attributes) {
    if (attribute.key == key) return std::get_if<T>(&attribute.value);
  }
  return nullptr;
}

}  // namespace tandem
