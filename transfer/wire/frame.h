#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "absl/status/statusor.h"

namespace tandem {

enum class FrameType : uint8_t {
  kData = 1,       // carries one extent as its payload
  kCommit = 2,     // all data frames of the stream were sent; the header counts them
  kAck = 3,        // receiver to sender: the stream is complete and verified
  kReject = 4,     // receiver to sender: the stream is refused or broken; `code` says why
  kHello = 5,      // the first frame of every connection
  kCredit = 6,     // receiver to sender: how much payload may have been sent since the start
  kRenew = 7,      // the sender of the stream is alive
  kResend = 8,     // receiver to sender, instead of kAck: an extent is missing
  kReference = 9,  // like kData, but the payload is found through the side channel
  kAnnounce = 10,  // the payloads of the next references are on their way in the side channel
};

// What the payload of a data frame is. Transports carry all of them alike.
enum class PayloadKind : uint8_t {
  kExtent = 0,   // the extent as it is
  kEncoded = 1,  // a frame of a codec, which holds the extent (docs/kv_codecs.md)
  kTables = 2,   // tables that encoded payloads of the stream are decoded with
};

// The header of every frame on a data connection: 64 bytes, little-endian. The last 8 are the
// XXH3-64 of the 56 before them. docs/kv_wire_format.md has the layout and a worked example.
struct FrameHeader {
  FrameType type = FrameType::kData;
  uint8_t code = 0;  // kReject: absl::StatusCode
  // The reservation id that the receiver gave out. kHello: a number that names the connection.
  uint64_t stream = 0;
  uint64_t epoch = 0;  // the receiver's incarnation: frames for an earlier one are refused
  uint32_t layer = 0;  // the extent's layer in a kData, kReference or kResend
  // Depends on the type. kData, kReference, kResend: index of the block in the sequence, not in a
  // pool. kHello: 1. kCommit, kAck: number of the commit. kReject: number of the commit that it
  // answers, 0 when none.
  uint32_t block = 0;
  // kData, kReference: size of the payload. kAnnounce: size of all payloads that are on their way.
  uint32_t payload_bytes = 0;
  PayloadKind kind = PayloadKind::kExtent;  // of a kData or kReference
  uint64_t payload_hash = 0;                // kData, kReference: XXH3-64 of the payload
  // Depends on the type. kCommit: data frames of the whole stream. kResend: how many extents the
  // answer to a commit asks for. kCredit: bytes of payload since the start.
  uint64_t frames = 0;
  uint64_t sent_bytes = 0;      // kCommit: bytes of payload that were sent before it
  uint64_t payload_handle = 0;  // kReference: names the payload in the side channel

  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

// Names a stream on the wire. The receiver of the stream gave out both numbers.
struct StreamKey {
  uint64_t stream = 0;
  uint64_t epoch = 0;

  friend bool operator==(const StreamKey&, const StreamKey&) = default;
  template <typename H>
  friend H AbslHashValue(H state, const StreamKey& key) {
    return H::combine(std::move(state), key.stream, key.epoch);
  }
};

inline StreamKey KeyOf(const FrameHeader& header) {
  return {.stream = header.stream, .epoch = header.epoch};
}

// Whether a payload belongs to the frame, in the connection or beside it.
inline bool BringsPayload(const FrameHeader& header) {
  return header.type == FrameType::kData || header.type == FrameType::kReference;
}

inline constexpr size_t kFrameHeaderBytes = 64;
inline constexpr uint32_t kFrameMagic = 0x314B4454;  // "TDK1"
// A frame has the oldest version that has all of its fields, so that workers of different builds
// understand each other until one uses what the other does not know.
inline constexpr uint16_t kFrameVersion = 3;
inline constexpr uint16_t kKindVersion = 4;  // where a payload is not a plain extent
// The size of the largest payload of a frame. Checked before anything is allocated or waited for.
inline constexpr uint32_t kMaxPayloadBytes = 64u << 20;

std::array<std::byte, kFrameHeaderBytes> EncodeFrameHeader(const FrameHeader& header);

// Compares `hash`, computed over the payload that landed, with the hash in the frame's header.
// DATA_LOSS names the extent when they differ.
absl::Status CheckPayloadHash(const FrameHeader& header, uint64_t hash);

// Parses a frame header; any 64 bytes may be given. DATA_LOSS for a wrong magic or checksum,
// FAILED_PRECONDITION for another version, INVALID_ARGUMENT for an unknown type, an impossible size
// or a field that the type does not use.
absl::StatusOr<FrameHeader> ParseFrameHeader(std::span<const std::byte, kFrameHeaderBytes> bytes);

}  // namespace tandem
