#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"

namespace tandem {

// A piece of memory that one side shares, as the other is told of it; its file, where it has one,
// comes beside the bytes.
struct IpcSegment {
  MemoryHandle::Kind kind = MemoryHandle::Kind::kHostFile;
  uint64_t bytes = 0;
  std::array<std::byte, MemoryHandle::kTokenBytes> token{};

  bool operator==(const IpcSegment&) const = default;
};

// The first message on the socket, from the connector: all memory that it sends from. The files of
// the segments that have one come with it, in their order.
//   offset 0  magic "TDIP" u32 · 4 version u16 · 6 count u8 · 7 0 u8
//          8  8 segments of 80 bytes: kind u8, 7 zeros, bytes u64, token; those beyond `count`
//          zeros
//        648  XXH3-64 of the rest
// Little-endian; every greeting has one encoding.
struct IpcGreeting {
  std::vector<IpcSegment> segments;  // at most kMaxIpcSegments

  bool operator==(const IpcGreeting&) const = default;
};

inline constexpr uint16_t kIpcVersion = 1;
inline constexpr size_t kMaxIpcSegments = 8;
// A place within a segment fits in so many bits. So no sum of sizes overflows either.
inline constexpr int kIpcOffsetBits = 48;
inline constexpr uint64_t kMaxIpcSegmentBytes = uint64_t{1} << kIpcOffsetBits;
inline constexpr size_t kIpcSegmentBytes = 80;
inline constexpr size_t kIpcGreetingBytes = 8 + kMaxIpcSegments * kIpcSegmentBytes + 8;

std::array<std::byte, kIpcGreetingBytes> EncodeIpcGreeting(const IpcGreeting& greeting);

// Total over any bytes. DATA_LOSS for what is no greeting or was damaged, FAILED_PRECONDITION for
// another version, INVALID_ARGUMENT for fields that cannot be.
absl::StatusOr<IpcGreeting> ParseIpcGreeting(std::span<const std::byte, kIpcGreetingBytes> bytes);

// Whether memory of this kind comes with a file.
bool HasFile(MemoryHandle::Kind kind);

// What the acceptor answers, after which bytes flow: kOk, or why it could not take the memory.
//   offset 0  magic "TDIA" u32 · 4 version u16 · 6 code u8 (gRPC's number) · 7 zeros
//         56  XXH3-64 of the rest
inline constexpr size_t kIpcAnswerBytes = 64;

std::array<std::byte, kIpcAnswerBytes> EncodeIpcAnswer(absl::StatusCode code);

// Errors as ParseIpcGreeting's.
absl::StatusOr<absl::StatusCode> ParseIpcAnswer(std::span<const std::byte, kIpcAnswerBytes> bytes);

}  // namespace tandem
