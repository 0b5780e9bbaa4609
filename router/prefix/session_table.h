#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "router/cluster/worker_view.h"
#include "tandem/v1/telemetry.pb.h"

namespace tandem {

// The workers that ran the latest request of a session.
struct SessionPlace {
  WorkerId prefill;
  WorkerId decode;  // empty when it ran on one unified worker

  friend bool operator==(const SessionPlace&, const SessionPlace&) = default;
};

// The key of a session; 0: the request belongs to no session. Sessions of different tenants are
// different.
uint64_t SessionKey(std::string_view tenant, std::string_view session_id);

// Where the latest request of each session ran. It remembers at most `limit` sessions, those that
// were used last. Thread-safe.
class SessionTable {
 public:
  static constexpr size_t kLimit = 65536;

  explicit SessionTable(size_t limit = kLimit) : limit_(limit) {}
  SessionTable(const SessionTable&) = delete;
  SessionTable& operator=(const SessionTable&) = delete;

  std::optional<SessionPlace> Find(uint64_t key) const;
  // The latest request of the session runs at `place`.
  void Set(uint64_t key, SessionPlace place);
  v1::SessionUse Use() const;

 private:
  struct Entry {
    uint64_t key;
    SessionPlace place;
  };
  using Entries = std::list<Entry>;  // the one used last comes first

  const size_t limit_;
  mutable absl::Mutex mutex_;
  Entries entries_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint64_t, Entries::iterator> by_key_ ABSL_GUARDED_BY(mutex_);
  v1::SessionUse use_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
