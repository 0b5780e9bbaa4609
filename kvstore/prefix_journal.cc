#include "kvstore/prefix_journal.h"

#include <algorithm>

namespace tandem {

uint64_t PrefixJournal::NextVersion(uint64_t hash) {
  const uint64_t next = ++last_version_;
  const auto [place, is_new] = versions_.try_emplace(hash, next);
  if (!is_new) {
    if (cached_.erase(place->second) == 0) removed_.erase(place->second);
    place->second = next;
  }
  return next;
}

void PrefixJournal::Add(uint64_t hash) {
  absl::MutexLock lock(&mutex_);
  cached_.emplace_hint(cached_.end(), NextVersion(hash), hash);
}

void PrefixJournal::Remove(uint64_t hash) {
  absl::MutexLock lock(&mutex_);
  removed_.emplace_hint(removed_.end(), NextVersion(hash), hash);
  if (removed_.size() <= most_removed_) return;
  const auto oldest = removed_.begin();
  forgotten_ = oldest->first;
  versions_.erase(oldest->second);
  removed_.erase(oldest);
}

size_t PrefixJournal::num_cached() const {
  absl::MutexLock lock(&mutex_);
  return cached_.size();
}

bool PrefixJournal::Read(Position& at, size_t most, PrefixChanges& changes) const {
  absl::MutexLock lock(&mutex_);
  if (at.version == 0) at.scratch = last_version_;
  const uint64_t removals_known = std::max(at.version, at.scratch);
  if (removals_known < forgotten_) return false;
  auto cached = cached_.upper_bound(at.version);
  auto removed = removed_.upper_bound(removals_known);
  for (; most > 0 && (cached != cached_.end() || removed != removed_.end()); --most) {
    const bool is_removal =
        removed != removed_.end() && (cached == cached_.end() || removed->first < cached->first);
    auto& next = is_removal ? removed : cached;
    (is_removal ? changes.removed : changes.added).push_back(next->second);
    at.version = next->first;
    ++next;
  }
  changes.more = cached != cached_.end() || removed != removed_.end();
  if (!changes.more) at.version = last_version_;
  return true;
}

PrefixChanges PrefixReader::Next(uint64_t confirmed, size_t most) {
  if (confirmed == sent_.sequence) {
    confirmed_ = sent_;
  } else if (confirmed != confirmed_.sequence) {
    confirmed_ = {};
  }
  PrefixChanges changes;
  Report next = confirmed_;
  if (!journal_.Read(next.end, most, changes)) {
    confirmed_ = {};
    next = {};
    journal_.Read(next.end, most, changes);
  }
  changes.since = confirmed_.sequence;
  next.sequence = changes.sequence = ++last_sequence_;
  sent_ = next;
  return changes;
}

}  // namespace tandem
