#include "server/admin/kv_dump_file.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "base/status.h"
#include "kvstore/kv_dump.h"
#include "server/services/worker_messages.h"

namespace tandem {
namespace {

// Reads a dump file. Only a file whose header is that of a dump and agrees with the file's size is
// read as a whole.
absl::StatusOr<KvDump> ReadDump(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return NotFound("no such file");
  if (!std::filesystem::is_regular_file(path, error)) return InvalidArgument("not a file");
  const uintmax_t size = std::filesystem::file_size(path, error);
  std::ifstream in(path, std::ios::binary);
  if (error || !in) return InvalidArgument("cannot be read");
  std::vector<std::byte> bytes(std::min<uintmax_t>(size, kKvDumpHeaderBytes));
  in.read(reinterpret_cast<char*>(bytes.data()), std::ssize(bytes));
  ASSIGN_OR_RETURN(const uint64_t expected, KvDumpFileBytes(bytes));
  if (size != expected) {
    return DataLoss("{}: it has {} bytes, and its header says {}",
                    size < expected ? "cut off" : "damaged", size, expected);
  }
  bytes.resize(size);
  in.seekg(0);
  in.read(reinterpret_cast<char*>(bytes.data()), std::ssize(bytes));
  if (!in) return InvalidArgument("cannot be read");
  return ParseKvDump(bytes);
}

}  // namespace

absl::StatusOr<v1::RequestExplanation> ReadKvDumpFile(const std::string& path) {
  const absl::StatusOr<KvDump> dump = ReadDump(path);
  if (!dump.ok()) return Annotate(dump.status(), path);
  v1::RequestExplanation request;
  request.set_request_id(dump->header.request_id);
  request.set_prompt_tokens(dump->header.prompt_tokens);
  request.set_kv_quality(std::string(Name(dump->header.quality)));
  v1::KvHandoff& handoff = *request.mutable_handoff();
  handoff.set_evicted_tokens(dump->header.evicted_tokens);
  uint64_t kv_bytes = 0;
  uint64_t wire_bytes = 0;
  for (const KvLayerParts& layer : dump->layers) {
    *handoff.add_layers() = ToProto(layer);
    kv_bytes += layer.k.kv_bytes + layer.v.kv_bytes;
    wire_bytes += layer.k.wire_bytes + layer.v.wire_bytes;
  }
  handoff.mutable_bytes()->set_raw(kv_bytes);
  handoff.mutable_bytes()->set_wire(wire_bytes);
  handoff.mutable_bytes()->set_codec(dump->header.codec);
  return request;
}

}  // namespace tandem
