#include "kvstore/kv_dump.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/status.h"
#include "kvstore/codec/frame_parts.h"
#include "kvstore/codec/kv_codec.h"

namespace tandem {
namespace {

static_assert(std::endian::native == std::endian::little, "dumps are little-endian");

// The bytes of a dump's header, in their order.
struct DumpHeader {
  uint32_t magic = kKvDumpMagic;
  uint16_t version = kKvDumpVersion;
  uint16_t id_bytes = 0;
  uint64_t file_bytes = 0;
  uint32_t num_records = 0;
  uint32_t prompt_tokens = 0;
  uint32_t evicted_tokens = 0;
  uint16_t num_layers = 0;
  uint16_t num_kv_heads = 0;
  uint16_t head_dim = 0;
  uint16_t block_tokens = 0;
  uint8_t dtype = 0;
  uint8_t quality = 0;
  uint16_t zero = 0;
  char codec[16] = {};
  uint64_t hash = 0;  // the hash of all other fields, the id and the records
};
static_assert(sizeof(DumpHeader) == kKvDumpHeaderBytes);
constexpr size_t kDumpHashAt = offsetof(DumpHeader, hash);

// The bytes of a record's header, in their order.
struct RecordHeader {
  uint16_t layer = 0;
  uint8_t framed = 0;
  uint8_t zero = 0;
  uint32_t block = 0;
  uint32_t tokens = 0;
  uint32_t payload_bytes = 0;
};
static_assert(sizeof(RecordHeader) == kKvDumpRecordBytes);

// The hash of a dump, where `head` is the header and the id behind it. The hash of each part is the
// seed for the next part.
uint64_t HashOfDump(std::span<const std::byte> head, std::span<const std::byte> records) {
  const uint64_t header = Hash64(head.first(kDumpHashAt));
  return Hash64(records, Hash64(head.subspan(kKvDumpHeaderBytes), header));
}

// The type that `byte` names. For a byte that names none it is one that KV cannot have, so that
// checking the layout rejects it.
DType DTypeOf(uint8_t byte) {
  return byte <= static_cast<uint8_t>(DType::kK4V3) ? static_cast<DType>(byte) : DType::kI32;
}

bool IsPrintable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > ' ' && c < '\x7f'; });
}

absl::StatusOr<DumpHeader> ParseFront(std::span<const std::byte> front) {
  DumpHeader header;
  const size_t present = std::min(front.size(), sizeof(header));
  if (present >= sizeof(header.magic)) std::memcpy(&header.magic, front.data(), 4);
  if (present < sizeof(header.magic) || header.magic != kKvDumpMagic) {
    return InvalidArgument(
        "no dump of KV: it does not begin with \"TDK1\". Give a file that a worker with --kv-dump "
        "wrote");
  }
  if (present < sizeof(header)) {
    return DataLoss("cut off: it ends after {} bytes, within its header of {}", present,
                    sizeof(header));
  }
  std::memcpy(&header, front.data(), sizeof(header));
  if (header.version != kKvDumpVersion) {
    return FailedPrecondition("a dump of version {}: this tandem reads version {}", header.version,
                              kKvDumpVersion);
  }
  if (header.file_bytes < sizeof(header) + header.id_bytes ||
      header.file_bytes > kMostKvDumpBytes) {
    return DataLoss("damaged: its header says that it has {} bytes", header.file_bytes);
  }
  return header;
}

absl::Status CheckFields(const DumpHeader& header, const KvDumpHeader& read) {
  const absl::Status layout = read.layout.Validate();
  if (!layout.ok()) return DataLoss("damaged: {}", std::string(layout.message()));
  if (!IsKvDumpId(read.request_id) || !IsPrintable(read.codec)) {
    return DataLoss("damaged: its request or codec has a name that none has");
  }
  if (header.quality >= kKvQualityNames.size() || header.zero != 0) {
    return DataLoss("damaged: its header has a quality class {} that does not exist",
                    header.quality);
  }
  constexpr uint32_t kMostTokens = 1u << 30;
  if (header.prompt_tokens > kMostTokens || header.evicted_tokens > header.prompt_tokens) {
    return DataLoss("damaged: {} of {} tokens of its prompt are evicted", header.evicted_tokens,
                    header.prompt_tokens);
  }
  return absl::OkStatus();
}

absl::StatusOr<KvDumpHeader> ReadHeader(const DumpHeader& header, std::span<const std::byte> file) {
  const auto* const id = reinterpret_cast<const char*>(file.data() + sizeof(header));
  KvDumpHeader read = {
      .layout = {.num_layers = header.num_layers,
                 .num_kv_heads = header.num_kv_heads,
                 .head_dim = header.head_dim,
                 .block_tokens = header.block_tokens,
                 .dtype = DTypeOf(header.dtype)},
      .prompt_tokens = static_cast<int32_t>(header.prompt_tokens),
      .evicted_tokens = static_cast<int32_t>(header.evicted_tokens),
      .quality = static_cast<KvQuality>(header.quality),
      .codec = std::string(header.codec, strnlen(header.codec, sizeof(header.codec))),
      .request_id = std::string(id, header.id_bytes)};
  RETURN_IF_ERROR(CheckFields(header, read));
  return read;
}

// The sizes of K and V in a record whose layer, block and number of tokens were checked.
absl::StatusOr<ExtentParts> PartsOfRecord(const KvDumpHeader& header, const RecordHeader& record,
                                          std::span<const std::byte> payload) {
  const KvLayout& layout = header.layout;
  const auto tokens = static_cast<int32_t>(record.tokens);
  if (record.framed == 0) {
    if (std::ssize(payload) != layout.ExtentBytes()) {
      return DataLoss("an extent of {} bytes, expected {}", payload.size(), layout.ExtentBytes());
    }
    return PartsOfRawExtent(layout, tokens);
  }
  ASSIGN_OR_RETURN(const ExtentParts parts, PartsOfFrame(payload));
  ASSIGN_OR_RETURN(const FrameCodec frame, CodecOfFrame(payload));
  const ExtentShape expected = {layout.dtype, layout.num_kv_heads, layout.head_dim, tokens};
  if (frame.shape != expected) {
    return DataLoss("a frame of {} tokens, {} heads of {}, {}: another shape than the dump's",
                    frame.shape.tokens, frame.shape.num_kv_heads, frame.shape.head_dim,
                    Name(frame.shape.dtype));
  }
  return parts;
}

absl::Status CheckRecord(const KvDumpHeader& header, const RecordHeader& record) {
  const KvLayout& layout = header.layout;
  const int32_t sent = header.prompt_tokens - header.evicted_tokens;
  if (record.layer >= layout.num_layers || record.framed > 1 || record.zero != 0 ||
      record.block >= static_cast<uint32_t>(layout.BlocksFor(sent)) || record.tokens < 1 ||
      record.tokens > static_cast<uint32_t>(layout.block_tokens)) {
    return DataLoss(
        "layer {}, block {} with {} tokens: a prompt of {} tokens and {} layers has none",
        record.layer, record.block, record.tokens, sent, layout.num_layers);
  }
  return absl::OkStatus();
}

absl::Status ReadRecords(std::span<const std::byte> records, uint32_t num_records, KvDump& dump) {
  for (uint32_t i = 0; i < num_records; ++i) {
    RecordHeader record;
    const auto about = [&](const absl::Status& status) {
      return DataLoss("damaged at record {} of {}: {}", i, num_records,
                      std::string(status.message()));
    };
    if (records.size() < sizeof(record)) return about(DataLoss("the file has no such record"));
    std::memcpy(&record, records.data(), sizeof(record));
    records = records.subspan(sizeof(record));
    if (records.size() < record.payload_bytes) {
      return about(
          DataLoss("{} bytes, of which the file has {}", record.payload_bytes, records.size()));
    }
    if (absl::Status status = CheckRecord(dump.header, record); !status.ok()) return about(status);
    const auto parts = PartsOfRecord(dump.header, record, records.first(record.payload_bytes));
    if (!parts.ok()) return about(parts.status());
    dump.layers[record.layer].Add(*parts);
    records = records.subspan(record.payload_bytes);
  }
  if (!records.empty()) {
    return DataLoss("damaged: {} bytes follow its last record", records.size());
  }
  return absl::OkStatus();
}

void Append(const void* bytes, size_t size, std::vector<std::byte>& out) {
  const auto* const begin = static_cast<const std::byte*>(bytes);
  out.insert(out.end(), begin, begin + size);
}

}  // namespace

bool IsKvDumpId(std::string_view request_id) {
  return !request_id.empty() && request_id.size() <= kMostKvDumpIdBytes && IsPrintable(request_id);
}

void AppendKvDumpRecord(const KvDumpRecord& record, std::vector<std::byte>& records) {
  const RecordHeader header = {.layer = static_cast<uint16_t>(record.layer),
                               .framed = static_cast<uint8_t>(record.framed ? 1 : 0),
                               .block = record.block,
                               .tokens = static_cast<uint32_t>(record.tokens),
                               .payload_bytes = static_cast<uint32_t>(record.payload.size())};
  Append(&header, sizeof(header), records);
  Append(record.payload.data(), record.payload.size(), records);
}

std::vector<std::byte> MakeKvDumpHead(const KvDumpHeader& header, uint32_t num_records,
                                      std::span<const std::byte> records) {
  TANDEM_CHECK(IsKvDumpId(header.request_id), "no request has such an id");
  DumpHeader out = {.id_bytes = static_cast<uint16_t>(header.request_id.size()),
                    .file_bytes = sizeof(DumpHeader) + header.request_id.size() + records.size(),
                    .num_records = num_records,
                    .prompt_tokens = static_cast<uint32_t>(header.prompt_tokens),
                    .evicted_tokens = static_cast<uint32_t>(header.evicted_tokens),
                    .num_layers = static_cast<uint16_t>(header.layout.num_layers),
                    .num_kv_heads = static_cast<uint16_t>(header.layout.num_kv_heads),
                    .head_dim = static_cast<uint16_t>(header.layout.head_dim),
                    .block_tokens = static_cast<uint16_t>(header.layout.block_tokens),
                    .dtype = static_cast<uint8_t>(header.layout.dtype),
                    .quality = static_cast<uint8_t>(header.quality)};
  header.codec.copy(out.codec, sizeof(out.codec));
  std::vector<std::byte> head;
  Append(&out, sizeof(out), head);
  Append(header.request_id.data(), header.request_id.size(), head);
  const uint64_t hash = HashOfDump(head, records);
  std::memcpy(head.data() + kDumpHashAt, &hash, sizeof(hash));
  return head;
}

absl::StatusOr<uint64_t> KvDumpFileBytes(std::span<const std::byte> front) {
  ASSIGN_OR_RETURN(const DumpHeader header, ParseFront(front));
  return header.file_bytes;
}

absl::StatusOr<KvDump> ParseKvDump(std::span<const std::byte> file) {
  ASSIGN_OR_RETURN(const DumpHeader header, ParseFront(file));
  if (file.size() < header.file_bytes) {
    return DataLoss("cut off: it ends after {} of {} bytes", file.size(), header.file_bytes);
  }
  if (file.size() > header.file_bytes) {
    return DataLoss("damaged: it has {} bytes, and its header says {}", file.size(),
                    header.file_bytes);
  }
  const size_t head_bytes = sizeof(header) + header.id_bytes;
  const std::span<const std::byte> records = file.subspan(head_bytes);
  if (HashOfDump(file.first(head_bytes), records) != header.hash) {
    return DataLoss("damaged: its checksum is wrong");
  }
  KvDump dump;
  ASSIGN_OR_RETURN(dump.header, ReadHeader(header, file));
  dump.layers.resize(static_cast<size_t>(dump.header.layout.num_layers));
  RETURN_IF_ERROR(ReadRecords(records, header.num_records, dump));
  return dump;
}

}  // namespace tandem
