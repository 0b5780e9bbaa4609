#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/handoff/codec_workers.h"
#include "engine/stats.h"
#include "kvstore/kv_dump.h"
#include "transfer/transport.h"

namespace tandem {

// The name of the file for a request: its id with other characters than letters, digits, '.', '_' and '-'
// replaced, and then with a hash of the id, so that other ids have other names. It names no directory and
// does not begin with a dot.
std::string KvDumpFileName(std::string_view request_id);

// What all dumps of one worker share. Thread-safe.
class KvDumpBudget {
 public:
  KvDumpBudget(uint64_t most_bytes, uint64_t used) : most_bytes_(most_bytes), used_(used) {}
  bool Reserve(uint64_t bytes);
  void GiveBack(uint64_t bytes) { used_ -= bytes; }
  uint64_t used() const { return used_; }

 private:
  const uint64_t most_bytes_;
  std::atomic<uint64_t> used_;
};

// The KV of one stream as it is posted, until it is written. Where the budget ends it keeps nothing.
// Thread-compatible.
class KvDumpBuffer {
 public:
  // `sent_tokens` tokens of the prompt are sent.
  KvDumpBuffer(std::shared_ptr<KvDumpBudget> budget, int32_t block_tokens, int32_t sent_tokens)
      : budget_(std::move(budget)), block_tokens_(block_tokens), sent_tokens_(sent_tokens) {}
  ~KvDumpBuffer() { Drop(); }
  KvDumpBuffer(const KvDumpBuffer&) = delete;
  KvDumpBuffer& operator=(const KvDumpBuffer&) = delete;

  // Extents, as they are or as frames.
  void Add(std::span<const PostedExtent> extents);
  // Takes `bytes` more of the budget. False when the buffer keeps nothing, now or already before.
  bool Reserve(uint64_t bytes);
  void Drop();
  // The bytes are the file's from now on.
  void KeepReserved() { reserved_ = 0; }

  std::span<const std::byte> records() const { return records_; }
  uint32_t num_records() const { return num_records_; }
  bool dropped() const { return dropped_; }

 private:
  const std::shared_ptr<KvDumpBudget> budget_;
  const int32_t block_tokens_;
  const int32_t sent_tokens_;
  std::vector<std::byte> records_;
  uint32_t num_records_ = 0;
  uint64_t reserved_ = 0;
  bool dropped_ = false;
};

// Writes the KV of hand-offs to files of a directory (docs/kv_codecs.md#dumped-kv), each whole or not at all.
// All of them together, those that are there already included, stay within a limit; what is not written
// yet is in memory and counts as well. The posted extents must be in the host's memory.
// Thread-safe. A thread of its own writes, and ends with this.
class KvDumper {
 public:
  struct Options {
    std::string directory;
    uint64_t most_bytes = 0;
    KvLayout layout;
  };
  // INVALID_ARGUMENT when the directory does not exist or nothing can be written to it.
  static absl::StatusOr<std::unique_ptr<KvDumper>> Open(const Options& options);
  KvDumper(const Options& options, uint64_t bytes_there);

  std::unique_ptr<KvDumpBuffer> NewBuffer(int32_t sent_tokens) const;
  // Writes a file of a buffer that is complete, soon. `header` needs no layout. Nothing is written of a
  // hand-off that sent no KV, or whose buffer is null.
  void Write(KvDumpHeader header, std::unique_ptr<KvDumpBuffer> buffer);
  // Sets the fields about dumps.
  void AddTo(EngineStats& stats) const;

 private:
  void WriteNow(const KvDumpHeader& header, KvDumpBuffer& buffer);

  const Options options_;
  const std::shared_ptr<KvDumpBudget> budget_;
  std::atomic<uint64_t> written_ = 0;
  std::atomic<uint64_t> skipped_ = 0;
  CodecWorkers writer_{1};  // last: its jobs use the above
};

}  // namespace tandem
