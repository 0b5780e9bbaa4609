// The greeting of an ipc connection and the answer to it, over foreign bytes.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "base/hash.h"
#include "transfer/media/ipc/greeting.h"

namespace tandem {
namespace {

void ParseOne(const std::array<std::byte, kIpcGreetingBytes>& bytes) {
  const auto greeting = ParseIpcGreeting(bytes);
  if (!greeting.ok()) return;
  TANDEM_CHECK(EncodeIpcGreeting(*greeting) == bytes, "a greeting has a second encoding");
  TANDEM_CHECK(greeting->segments.size() <= kMaxIpcSegments, "too many segments");
  uint64_t total = 0;
  for (const IpcSegment& segment : greeting->segments) {
    TANDEM_CHECK(segment.bytes > 0 && segment.bytes < kMaxIpcSegmentBytes, "a size out of bounds");
    TANDEM_CHECK(total + segment.bytes > total, "the sum of the sizes overflows");
    total += segment.bytes;
  }
}

void ParseOne(const std::array<std::byte, kIpcAnswerBytes>& bytes) {
  const auto code = ParseIpcAnswer(bytes);
  if (!code.ok()) return;
  TANDEM_CHECK(EncodeIpcAnswer(*code) == bytes, "an answer has a second encoding");
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
  tandem::ParseBoth<tandem::kIpcGreetingBytes>(data, size);
  tandem::ParseBoth<tandem::kIpcAnswerBytes>(data, size);
  return 0;
}
