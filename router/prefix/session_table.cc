#include "router/prefix/session_table.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/hash.h"

namespace tandem {

uint64_t SessionKey(std::string_view tenant, std::string_view session_id) {
  if (session_id.empty()) return 0;
  const uint64_t seed = Hash64(std::as_bytes(std::span(tenant)));
  return std::max<uint64_t>(Hash64(std::as_bytes(std::span(session_id)), seed), 1);
}

std::optional<SessionPlace> SessionTable::Find(uint64_t key) const {
  absl::MutexLock lock(&mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return std::nullopt;
  return found->second->place;
}

void SessionTable::Set(uint64_t key, SessionPlace place) {
  absl::MutexLock lock(&mutex_);
  const auto found = by_key_.find(key);
  if (found != by_key_.end()) {
    Entry& entry = *found->second;
    if (entry.place == place) {
      use_.set_kept(use_.kept() + 1);
    } else {
      use_.set_moved(use_.moved() + 1);
      entry.place = std::move(place);
    }
    entries_.splice(entries_.begin(), entries_, found->second);
    return;
  }
  if (entries_.size() == limit_) {
    by_key_.erase(entries_.back().key);
    entries_.pop_back();
    use_.set_forgotten(use_.forgotten() + 1);
  }
  entries_.push_front({key, std::move(place)});
  by_key_.emplace(key, entries_.begin());
}

v1::SessionUse SessionTable::Use() const {
  absl::MutexLock lock(&mutex_);
  v1::SessionUse use = use_;
  use.set_entries(entries_.size());
  use.set_limit(limit_);
  return use;
}

}  // namespace tandem
