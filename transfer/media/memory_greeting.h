#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"

namespace tandem {

// One piece of shared memory as the greeting describes it. Its file, if it has one, is sent beside
// the bytes.
struct MemorySegment {
  MemoryHandle::Kind kind = MemoryHandle::Kind::kHostFile;
  uint64_t bytes = 0;
  std::array<std::byte, MemoryHandle::kTokenBytes> token{};

  bool operator==(const MemorySegment&) const = default;
};

// The first message on the socket of a connection. It lists all memory from which the connecting
// side, its author, sends payloads. The files of the segments that have one come with it, in their
// order. docs/media/ipc.md has the layout; every greeting has exactly one encoding.
struct MemoryGreeting {
  std::vector<MemorySegment> segments;  // at most kMaxMemorySegments

  bool operator==(const MemoryGreeting&) const = default;
};

inline constexpr uint16_t kMemoryGreetingVersion = 1;
inline constexpr size_t kMaxMemorySegments = 8;
// The number of bits into which an offset in a segment fits, so that no sum of sizes overflows.
inline constexpr int kSegmentOffsetBits = 48;
inline constexpr uint64_t kMaxMemorySegmentBytes = uint64_t{1} << kSegmentOffsetBits;
inline constexpr size_t kMemorySegmentBytes = 80;
inline constexpr size_t kMemoryGreetingBytes = 8 + kMaxMemorySegments * kMemorySegmentBytes + 8;

std::array<std::byte, kMemoryGreetingBytes> EncodeMemoryGreeting(const MemoryGreeting& greeting);

// Parses a greeting; any bytes may be given. DATA_LOSS for bytes that are not a greeting or were
// damaged, FAILED_PRECONDITION for another version, INVALID_ARGUMENT for impossible fields.
absl::StatusOr<MemoryGreeting> ParseMemoryGreeting(
    std::span<const std::byte, kMemoryGreetingBytes> bytes);

// Whether a peer shares memory of this kind by sending a file.
bool HasFile(MemoryHandle::Kind kind);

// The size of the accepting side's answer to a greeting. It says kOk, after which frames flow, or
// why that side could not open the memory. docs/media/ipc.md has the layout.
inline constexpr size_t kMemoryAnswerBytes = 64;

std::array<std::byte, kMemoryAnswerBytes> EncodeMemoryAnswer(absl::StatusCode code);

// Parses the answer to a greeting; any bytes may be given. Errors as ParseMemoryGreeting.
absl::StatusOr<absl::StatusCode> ParseMemoryAnswer(
    std::span<const std::byte, kMemoryAnswerBytes> bytes);

}  // namespace tandem
