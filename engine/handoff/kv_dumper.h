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

// The file name of the dump for a request: its id, with every character other than letters, digits,
// '.', '_' and '-' replaced, and cut off when it is long. Where that changes the id, a hash of the
// id is added, so that different ids have different names. The name contains no directory and does
// not begin with a dot.
std::string KvDumpFileName(std::string_view request_id);

// The bytes that all dumps of one worker may take, and those that they take. Thread-safe.
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

// Collects the KV of one stream as it is posted, until it is written to a file. When the budget is
// exhausted it drops everything that it has and keeps nothing more. Thread-compatible.
class KvDumpBuffer {
 public:
  // `sent_tokens`: how many tokens of the prompt are sent.
  KvDumpBuffer(std::shared_ptr<KvDumpBudget> budget, int32_t block_tokens, int32_t sent_tokens)
      : budget_(std::move(budget)), block_tokens_(block_tokens), sent_tokens_(sent_tokens) {}
  ~KvDumpBuffer() { Drop(); }
  KvDumpBuffer(const KvDumpBuffer&) = delete;
  KvDumpBuffer& operator=(const KvDumpBuffer&) = delete;

  // Adds extents, as they are or encoded as frames.
  void Add(std::span<const PostedExtent> extents);
  // Takes `bytes` more of the budget. False when the buffer has dropped its content, now or
  // earlier.
  bool Reserve(uint64_t bytes);
  void Drop();
  // The reserved bytes now belong to the file that was written, and this no longer gives them back.
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

// Writes the KV of hand-offs to files of a directory (docs/kv_codecs.md#dumped-kv), each whole or
// not at all. The files of the directory, including those of earlier runs, and the KV in memory
// that is still to be written stay within a common limit. The posted extents must be in the host's
// memory.
// Thread-safe. A thread of its own writes the files; it ends with this object.
class KvDumper {
 public:
  struct Options {
    std::string directory;
    uint64_t most_bytes = 0;
    KvLayout layout;
  };
  // INVALID_ARGUMENT when the directory does not exist or is not writable.
  static absl::StatusOr<std::unique_ptr<KvDumper>> Open(const Options& options);
  KvDumper(const Options& options, uint64_t bytes_there);

  std::unique_ptr<KvDumpBuffer> NewBuffer(int32_t sent_tokens) const;
  // Queues a complete buffer to be written to a file. `header` needs no layout. Nothing is written
  // when the buffer is null or the hand-off sent no KV.
  void Write(KvDumpHeader header, std::unique_ptr<KvDumpBuffer> buffer);
  // Sets the fields of `stats` about dumps.
  void AddTo(EngineStats& stats) const;

 private:
  void WriteNow(const KvDumpHeader& header, KvDumpBuffer& buffer);

  const Options options_;
  const std::shared_ptr<KvDumpBudget> budget_;
  std::atomic<uint64_t> written_ = 0;
  std::atomic<uint64_t> skipped_ = 0;
  CodecWorkers writer_{1};  // declared last: its jobs use the members above
};

}  // namespace tandem
