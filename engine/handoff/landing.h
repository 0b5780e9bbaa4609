#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/kv_quality.h"
#include "kvstore/codec/extent_shape.h"
#include "kvstore/codec/frame_decoder.h"
#include "kvstore/kv_layout.h"
#include "transfer/transport.h"

namespace tandem {

// The place in the pool for the KV of one sequence.
struct LandingPlan {
  std::vector<int32_t> blocks;  // the sequence's blocks in the pool
  // The layout of the sender. Frames name blocks of this layout; CanConvert it to the pool's.
  KvLayout layout;
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;  // tokens of the prompt already in the pool, which must not change
  KvQuality quality = KvQuality::kExact;  // with kExact, KV of lossy codecs is refused
};

// Which kinds of payload a landing accepts.
enum class Accepts : uint8_t { kExtents, kExtentsAndFrames };

// The progress of the KV of one reservation that arrives. LandingZone describes its states.
// Thread: one at a time.
struct Landing {
  enum class Extent : uint8_t { kEmpty, kWriting, kLanded };

  Landing(LandingPlan landing_plan, const KvLayout& pool_layout, Accepts accepted,
          TimePoint first_lease_end);

  LandingPlan plan;
  bool direct = false;       // the sender's layout is the pool's
  uint32_t first_block = 0;  // the sender's first block with a token that is not cached
  Accepts accepts = Accepts::kExtents;
  std::vector<Extent> extents;  // [layer][block - first_block], then one entry for the tables
  absl::flat_hash_map<size_t, int32_t> slots;  // by index in `extents`, where a slot is used
  int64_t num_landed = 0;
  int64_t num_verified = 0;  // verified payloads in slots, whose extents are still kWriting
  int32_t num_writing = 0;
  int32_t num_decoding = 0;  // of num_writing: payloads that a codec worker decodes
  // Decodes this reservation's payloads. It has the codec tables that were known when the
  // reservation was made, and those that its sender brought.
  FrameDecoder decoder;
  TimePoint lease_end{};
  bool committed = false;
  bool closed = false;
  absl::Status broken;

  // The number of the sender's blocks that the prompt takes.
  uint32_t num_blocks() const {
    return static_cast<uint32_t>(plan.layout.BlocksFor(plan.prompt_tokens));
  }
  int64_t num_extents() const { return static_cast<int64_t>(extents.size()) - 1; }
  bool has_tables() const { return extents.back() == Extent::kLanded; }
  // How many extents of KV have landed; the tables do not count.
  int64_t num_landed_extents() const { return num_landed - (has_tables() ? 1 : 0); }
  // The index of the extent that the header names, in [0, extents.size()). PERMISSION_DENIED when
  // the reservation has no such extent of that kind and size: the sender learned the layout and the
  // cached tokens from its reservation, so a peer that names another extent did not make it.
  absl::StatusOr<size_t> IndexOf(const FrameHeader& header) const;
  // The shape of the KV that an encoded payload for the sender's block `block` holds.
  ExtentShape ShapeOf(uint32_t block) const;
  // The size in bytes of codec tables for KV of the sender's layout.
  size_t TablesBytes(CodecTables::Use use) const;
  // The extents that have not landed, for the commit of a stream of `frames` frames. DATA_LOSS when
  // that number is impossible: a stream has one frame for each extent, and may have one for tables.
  absl::StatusOr<std::vector<MissingExtent>> Missing(uint64_t frames) const;
  // How many of the reservation's bytes of KV have landed.
  uint64_t LandedBytes() const;
};

}  // namespace tandem
