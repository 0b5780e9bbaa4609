#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"

namespace tandem {

// What changed in a prefix cache between two reports to one router: chained hashes of blocks, never
// tokens. A hash occurs once, with its latest state, so that changes may be split into reports at
// any point.
struct PrefixChanges {
  uint64_t since = 0;  // the report that this one continues; 0: it describes the cache from scratch
  uint64_t sequence = 0;  // the number of this report
  std::vector<uint64_t> added;
  std::vector<uint64_t> removed;
  bool more = false;  // further changes wait to be read
};

// The blocks that a prefix cache has, by chained hash, in the order of their latest changes. It
// holds each cached block once, and of the removed ones the latest `most_removed`, so its size is
// bounded however slowly it is read. A reader that missed a removal which was forgotten begins from
// scratch, by the same mechanism: it reads the blocks that are cached in the order of their addition.
//
// Add and Remove cost a lock that readers hold only while they copy one report.
// Thread-safe: the engine writes, each connection to a router reads through a PrefixReader.
class PrefixJournal {
 public:
  static constexpr size_t kMostRemoved = size_t{1} << 16;

  explicit PrefixJournal(size_t most_removed = kMostRemoved) : most_removed_(most_removed) {}
  PrefixJournal(const PrefixJournal&) = delete;
  PrefixJournal& operator=(const PrefixJournal&) = delete;

  void Add(uint64_t hash);
  void Remove(uint64_t hash);

  size_t num_cached() const;

 private:
  friend class PrefixReader;

  // Each change has a version; versions count from 1.
  using Changes = absl::btree_map<uint64_t, uint64_t>;  // from version to hash

  // Where a reader is. It has seen all changes up to `version`. Since it began from scratch after
  // version `scratch`, it needs no removals up to that version.
  struct Position {
    uint64_t version = 0;
    uint64_t scratch = 0;
  };

  // Sets the version of `hash` to the next one, and returns it.
  uint64_t NextVersion(uint64_t hash) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adds at most `most` changes after `at` to `changes`, and moves `at` behind them. False when the
  // journal has forgotten some of the removals.
  bool Read(Position& at, size_t most, PrefixChanges& changes) const;

  const size_t most_removed_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<uint64_t, uint64_t> versions_ ABSL_GUARDED_BY(mutex_);  // by hash
  Changes cached_ ABSL_GUARDED_BY(mutex_);
  Changes removed_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_version_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t forgotten_ ABSL_GUARDED_BY(mutex_) = 0;  // version of the latest removal forgotten
};

// Reads a journal in reports for one router. A report is repeated until the router has confirmed
// it, so that messages may be lost, repeated or overtaken. Thread: one at a time. The journal must
// outlive it.
class PrefixReader {
 public:
  explicit PrefixReader(const PrefixJournal& journal) : journal_(journal) {}

  // The next report, with at most `most` changes. confirmed: the sequence of the latest report that
  // the router applied; 0 or an unknown number: it needs a description from scratch.
  PrefixChanges Next(uint64_t confirmed, size_t most);

 private:
  struct Report {
    uint64_t sequence = 0;  // 0: no report, so the router knows nothing
    PrefixJournal::Position end;
  };

  const PrefixJournal& journal_;
  uint64_t last_sequence_ = 0;
  Report confirmed_;
  Report sent_;  // the latest report that was sent
};

}  // namespace tandem
