// The greeting of an ipc connection and the answer to it, over foreign bytes.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "base/hash.h"
#include "transfer/media/memory_greeting.h"

namespace tandem {
namespace {

void ParseOne(const std::array<std::byte, kMemoryGreetingBytes>& bytes) {
  const auto greeting = ParseMemoryGreeting(bytes);
  if (!greeting.ok()) return;
  TANDEM_CHECK(EncodeMemoryGreeting(*greeting) == bytes, "a greeting has a second encoding");
  TANDEM_CHECK(greeting->segments.size() <= kMaxMemorySegments, "too many segments");
  uint64_t total = 0;
  for (const MemorySegment& segment : greeting->segments) {
    TANDEM_CHECK(segment.bytes > 0 && segment.bytes < kMaxMemorySegmentBytes,
                 "a size out of bounds");
    TANDEM_CHECK(total + segment.bytes > total, "the sum of the sizes overflows");
    total += segment.bytes;
  }
}

void ParseOne(const std::array<std::byte, kMemoryAnswerBytes>& bytes) {
  const auto code = ParseMemoryAnswer(bytes);
  if (!code.ok()) return;
  TANDEM_CHECK(EncodeMemoryAnswer(*code) == bytes, "an answer has a second encoding");
}

// As they are, and with a right hash, which mutations break nearly always.
template <size_t kSize>
void ParseBoth(const uint8_t* data, size_t size) {
  std::array<std::byte, kSize> bytes{};
  std::copy_n(reinterpret_cast<const std::byte*>(data), std::min(size, kSize), bytes.begin());
  ParseOne(bytes);
  const uint64_t hash = Hash64(std::span(bytes).template first<kSize - sizeof(uint64_t)>());
  std::memcpy(bytes.data() + kSize - sizeof(hash), &hash, sizeof(hash));
  ParseOne(bytes);
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::ParseBoth<tandem::kMemoryGreetingBytes>(data, size);
  tandem::ParseBoth<tandem::kMemoryAnswerBytes>(data, size);
  return 0;
}
