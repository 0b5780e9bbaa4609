#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/kv_quality.h"
#include "kvstore/kv_layout.h"
#include "kvstore/kv_parts.h"

namespace tandem {

// A file with the KV of one hand-off as it was sent (bytes: docs/kv_codecs.md#dumped-kv): a header,
// then one record for each extent. It has neither the text of the prompt nor its tokens.

inline constexpr uint32_t kKvDumpMagic = 0x314b4454;  // "TDK1" in memory order
inline constexpr uint16_t kKvDumpVersion = 1;
inline constexpr size_t kKvDumpHeaderBytes = 64;  // the request's id follows
inline constexpr size_t kKvDumpRecordBytes = 16;  // the payload follows
inline constexpr size_t kMostKvDumpIdBytes = 128;
inline constexpr uint64_t kMostKvDumpBytes = uint64_t{1} << 34;  // largest file that a reader takes

struct KvDumpHeader {
  KvLayout layout;  // the layout of the prefill worker
  int32_t prompt_tokens = 0;
  int32_t evicted_tokens = 0;  // prompt tokens that were evicted: their KV was not sent
  KvQuality quality = KvQuality::kExact;
  std::string codec;       // KvCodec::name, at most 16 bytes
  std::string request_id;  // printable ASCII, at most kMostKvDumpIdBytes

  friend bool operator==(const KvDumpHeader&, const KvDumpHeader&) = default;
};

// Whether a dump can name this request: its id is not empty, printable ASCII without spaces, and at
// most kMostKvDumpIdBytes long.
bool IsKvDumpId(std::string_view request_id);

// One extent as it was sent.
struct KvDumpRecord {
  uint32_t layer = 0;
  uint32_t block = 0;  // index among the blocks of the tokens that were not evicted
  int32_t tokens = 0;  // number of tokens, from the front, that hold KV
  bool framed =
      false;  // `payload` is a frame of a codec; otherwise the extent as it lies in the pool
  std::span<const std::byte> payload;
};

// Appends a record to `records`.
void AppendKvDumpRecord(const KvDumpRecord& record, std::vector<std::byte>& records);
// The beginning of a dump file, which is its header and the request's id. The `num_records` records
// in `records` must follow it in the file.
std::vector<std::byte> MakeKvDumpHead(const KvDumpHeader& header, uint32_t num_records,
                                      std::span<const std::byte> records);

// What a dump file says about the KV in it: its header, and the sizes of each layer's K and V.
struct KvDump {
  KvDumpHeader header;
  KvParts layers;  // as many as the layout has
};

// The size of the whole dump file that begins with `front`, which is its first kKvDumpHeaderBytes
// bytes or, if it is shorter, the whole file. INVALID_ARGUMENT when it is no dump of KV,
// FAILED_PRECONDITION when it is a dump of another version, DATA_LOSS when it ends within its
// header or names a size that no dump has.
absl::StatusOr<uint64_t> KvDumpFileBytes(std::span<const std::byte> front);

// Reads a whole dump file. It trusts no size that the file names; the only allocation that grows
// with such a size is that of the layers. Errors as KvDumpFileBytes; DATA_LOSS as well when the
// file is cut off or damaged, or a record in it is not what an engine writes: the message names the
// record.
absl::StatusOr<KvDump> ParseKvDump(std::span<const std::byte> file);

}  // namespace tandem
