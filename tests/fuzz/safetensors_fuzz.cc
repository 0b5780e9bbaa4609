#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "model/checkpoint/safetensors.h"

// What the parser accepts tiles the file: in order, without overlap, each as long as its shape
// says.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto entries = tandem::ParseSafetensorsHeader(std::as_bytes(std::span(data, size)), size);
  if (!entries.ok()) return 0;
  uint64_t covered = entries->empty() ? size : entries->front().begin;
  for (const tandem::SafetensorsEntry& entry : *entries) {
    uint64_t bytes = static_cast<uint64_t>(tandem::SizeOf(entry.dtype));
    for (int64_t extent : entry.shape) bytes *= static_cast<uint64_t>(extent);
    if (entry.begin != covered || entry.end - entry.begin != bytes) std::abort();
    covered = entry.end;
  }
  if (covered != size) std::abort();
  return 0;
}
