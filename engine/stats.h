#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "kvstore/codec/extent_parts.h"
#include "kvstore/codec/kv_codec.h"
#include "kvstore/kv_store.h"
#include "scheduler/latency_model/cost_state.h"
#include "scheduler/stats.h"

namespace tandem {

// Counts of hand-offs since the start.
struct HandoffCounts {
  uint64_t sent = 0;      // hand-offs that the peer acknowledged
  uint64_t received = 0;  // reservations whose KV is complete and verified
  uint64_t retried = 0;   // streams that were opened again after a loss
  uint64_t lapsed = 0;    // reservations whose lease or deadline passed
  uint64_t refused = 0;   // reservations for which there was no room in time
};

// What one codec did for the hand-offs of a prefill worker since the start.
struct WireCodecStats {
  CodecId codec = CodecId::kRaw;
  std::string name;      // KvCodec::name
  uint64_t streams = 0;  // streams that were opened with it
  // Bytes of the extents that the codec was given, and of what was sent for them, without the
  // headers of the wire frames.
  PartBytes k;
  PartBytes v;
  // The rates of one thread, with 1 GB = 1e9 bytes of KV; 0 before they were measured.
  double encode_gigabytes_per_second = 0;
  double decode_gigabytes_per_second = 0;

  uint64_t kv_bytes() const { return k.kv_bytes + v.kv_bytes; }
  uint64_t wire_bytes() const { return k.wire_bytes + v.wire_bytes; }
};

// Counts of files with the KV of hand-offs (EngineOptions::kv_dump_directory).
struct KvDumpCounts {
  uint64_t written = 0;
  uint64_t skipped = 0;  // hand-offs whose KV was not written, because of the limit or an error
  uint64_t bytes = 0;    // present size of all files and of KV in memory that will be written
};

// A snapshot for status pages, heartbeats and tests. `kv.free_blocks` are neither in a sequence nor
// cached.
struct EngineStats {
  // True while weights load, the runner warms up or steps are measured: requests are accepted and
  // wait.
  bool starting = true;
  SchedulerStats scheduler;
  CostState costs;
  KvStats kv;
  int32_t most_used_blocks = 0;      // the most blocks that sequences held at any time
  double fragmentation = 0;          // share of the slots in sequences' blocks that hold no token
  int32_t reservations = 0;          // reservations with blocks set aside
  int32_t waiting_reservations = 0;  // reservations that wait for room
  int32_t draining_reservations =
      0;                 // of `reservations`: released while a payload was being written
  int32_t handoffs = 0;  // streams that send KV, or will
  HandoffCounts handoff_counts;
  uint64_t requests_accepted = 0;
  uint64_t requests_finished = 0;  // with any status
  uint64_t prompt_tokens = 0;      // prompt tokens that were computed
  uint64_t output_tokens = 0;      // tokens that were sampled
  uint64_t steps = 0;
  uint64_t evictions = 0;           // prompts that gave up KV at their end
  uint64_t evicted_tokens = 0;      // tokens of prompts and output whose KV was given up
  uint64_t host_copied_blocks = 0;  // between device and host, in both directions
  Duration host_copy_time{};        // total time of copies between device and host
  uint64_t kv_bytes_sent = 0;
  uint64_t kv_bytes_received = 0;
  std::vector<WireCodecStats> wire_codecs;  // none where KV is not encoded
  // Extents that were sent as they are because too much KV waited to be encoded or acknowledged.
  uint64_t unencoded_extents = 0;
  uint64_t codec_calibrations = 0;  // how often the tables of the codecs were made
  KvDumpCounts kv_dumps;
};

}  // namespace tandem
