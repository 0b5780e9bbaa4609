#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace tandem {

enum class FrameType : uint8_t {
  kData = 1,       // payload: the bytes of one extent
  kCommit = 2,     // no payload: all data frames of the stream were sent; counts are in the header
  kAck = 3,        // receiver to sender: the stream is complete and verified
  kReject = 4,     // receiver to sender: the stream is refused or broken; `code` says why
  kHello = 5,      // the first frame of every connection: which of a group it is
  kCredit = 6,     // receiver to sender: how much payload may have been sent so far
  kRenew = 7,      // the sender of the stream lives
  kResend = 8,     // receiver to sender, instead of kAck: an extent that is missing
  kReference = 9,  // as kData, but the payload does not follow: the channel's lane finds it
  kAnnounce = 10,  // what the next references name comes over the lane
};

// The head of every frame on a data connection, little-endian, 64 bytes, the last 8 of which are
// the XXH3-64 of the 56 before. docs/kv_wire_format.md has the layout and a worked example.
struct FrameHeader {
  FrameType type = FrameType::kData;
  uint8_t code = 0;     // kReject: absl::StatusCode
  uint64_t stream = 0;  // what the receiver gave out: the reservation id. kHello: of the group
  uint64_t epoch = 0;   // the receiver's incarnation: frames for an earlier one are refused
  uint32_t layer = 0;   // kData, kResend. kHello: index of the connection in its group
  uint32_t block = 0;   // kData, kResend: index in the sequence, not in a pool. kHello: how many
                        // connections the group has. kCommit, kAck: number of the commit.
                        // kReject: of the commit that it answers, 0 when none
  uint32_t payload_bytes = 0;  // kData, kReference. kAnnounce: of all that comes
  uint64_t payload_hash = 0;   // kData, kReference: XXH3-64 of the payload
  uint64_t frames = 0;  // kCommit: data frames of the whole stream. kResend: how many extents
                        // this answer asks for. kCredit: bytes of payload since the start

  uint64_t sent_bytes = 0;  // kCommit: payload that was sent before it on its connection
  uint64_t place = 0;       // kReference: where the payload lies, as the lane has it

  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

// Whether a payload belongs to it, be it beside the bytes of the connection.
inline bool BringsPayload(const FrameHeader& header) {
  return header.type == FrameType::kData || header.type == FrameType::kReference;
}

inline constexpr size_t kFrameHeaderBytes = 64;
inline constexpr uint32_t kFrameMagic = 0x314B4454;  // "TDK1"
inline constexpr uint16_t kFrameVersion = 3;
// No extent is larger; checked before anything is allocated or awaited.
inline constexpr uint32_t kMaxPayloadBytes = 64u << 20;
// Connections of one group.
inline constexpr uint32_t kMaxGroupConnections = 16;

std::array<std::byte, kFrameHeaderBytes> EncodeFrameHeader(const FrameHeader& header);

// OK when `hash`, of what landed, is what the header says; else DATA_LOSS, naming the extent.
absl::Status CheckPayloadHash(const FrameHeader& header, uint64_t hash);

// Total over any 64 bytes. DATA_LOSS for a wrong magic or checksum, FAILED_PRECONDITION for another
// version, INVALID_ARGUMENT for a type, a size or a set field that cannot be.
absl::StatusOr<FrameHeader> ParseFrameHeader(std::span<const std::byte, kFrameHeaderBytes> bytes);

}  // namespace tandem
