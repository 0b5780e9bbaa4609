#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/hash.h"
#include "tests/fuzz/landing_worker.h"
#include "tests/fuzz/steps.h"
#include "transfer/wire/frame.h"

namespace tandem::inbound_fuzz {

// Headers of frames as the steps say: of the worker's reservations and nearly so, or of anything.
class HostileHeaders {
 public:
  explicit HostileHeaders(Steps& steps) : steps_(steps) {}

  // Of one of the worker's streams, or of one that it does not know, and perhaps of its former life.
  FrameHeader HeaderOf(FrameType type, uint64_t payload_bytes) {
    static constexpr std::array<uint64_t, 8> kStreams = {3, 4, 5, 3, 4, 5, 1, 9};
    const uint64_t which = steps_.Take(1);
    return {.type = type,
            .stream = kStreams[which % kStreams.size()],
            .epoch = which >= 0xF0 ? kEpoch - 1 : kEpoch,
            .payload_bytes = static_cast<uint32_t>(payload_bytes)};
  }

  // Of an extent that some reservation has, or nearly.
  FrameHeader ExtentHeader(FrameType type) {
    FrameHeader header = HeaderOf(type, 0);
    const uint64_t place = steps_.Take(1);
    header.layer = place % 3;
    header.block = place / 3 % 4;
    header.payload_bytes = static_cast<uint32_t>(header.stream == 5 ? kWideLayout.ExtentBytes()
                                                                    : kLayout.ExtentBytes());
    return header;
  }

  FrameHeader AnyReference() {
    FrameHeader header = ExtentHeader(FrameType::kReference);
    header.payload_bytes = 1 + static_cast<uint32_t>(steps_.Take(2));
    header.payload_handle = steps_.Take(2);
    return header;
  }

  // Any type and fields.
  FrameHeader AnyHeader() {
    FrameHeader header;
    header.type = static_cast<FrameType>(steps_.Take(1));
    const uint64_t fields = steps_.Take(1);
    if ((fields & 1) != 0) header.code = static_cast<uint8_t>(steps_.Take(1));
    if ((fields & 2) != 0) header.stream = steps_.Take(8);
    if ((fields & 4) != 0) header.epoch = steps_.Take(8);
    if ((fields & 8) != 0) header.layer = static_cast<uint32_t>(steps_.Take(4));
    if ((fields & 16) != 0) header.block = static_cast<uint32_t>(steps_.Take(4));
    if ((fields & 32) != 0) header.payload_bytes = static_cast<uint32_t>(steps_.Take(4));
    if ((fields & 64) != 0) header.payload_hash = header.sent_bytes = steps_.Take(8);
    if ((fields & 128) != 0) header.frames = header.payload_handle = steps_.Take(8);
    // Only what an honest sender sends of an extent has a hash that fits it: libFuzzer learns the
    // numbers that the code compares.
    if (BringsPayload(header) && header.payload_bytes <= kLargestExtent) {
      const std::vector<std::byte> honest(header.payload_bytes,
                                          ByteOf(header.stream, header.layer));
      header.payload_hash = Hash64(honest);
    }
    return header;
  }

 private:
  Steps& steps_;
};

}  // namespace tandem::inbound_fuzz
