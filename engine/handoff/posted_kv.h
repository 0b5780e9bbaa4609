#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "engine/handoff/kv_dumper.h"
#include "kvstore/kv_parts.h"
#include "transfer/transport.h"

namespace tandem {

// What was posted for one request, on all of its streams together. Thread-safe.
class PostedKv {
 public:
  // From now on extends `dump` with the extents that are posted. An earlier dump is dropped, since
  // all KV is posted anew.
  void SetDump(std::unique_ptr<KvDumpBuffer> dump);
  // Hands over the dump; null where there is none.
  std::unique_ptr<KvDumpBuffer> TakeDump();

  // Counts frames of any kind that were posted.
  void Add(std::span<const PostedExtent> frames);
  // Counts the parts of those posted frames that are extents of KV; `parts` has one entry for each
  // of `extents`.
  void AddParts(std::span<const PostedExtent> extents, std::span<const ExtentParts> parts);

  uint64_t frames() const;
  uint64_t payload_bytes() const;
  KvParts parts() const;

 private:
  mutable absl::Mutex mutex_;
  uint64_t frames_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t payload_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  KvParts parts_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<KvDumpBuffer> dump_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
