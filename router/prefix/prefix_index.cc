#include "router/prefix/prefix_index.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/status.h"

namespace tandem {
namespace {

// The number of reports after which it is known what a worker has cached of a computed prompt: one
// that was under way when the prompt had been computed may not have its blocks; the one after it
// does.
constexpr uint64_t kReportsUntilKnown = 2;

// Chained hashes are equal up to the first block that differs.
size_t CommonPrefix(std::span<const uint64_t> a, std::span<const uint64_t> b) {
  const size_t shorter = std::min(a.size(), b.size());
  if (shorter == 0 || a.front() != b.front()) return 0;
  size_t equal = 1;
  size_t limit = shorter;
  while (equal < limit) {
    const size_t middle = equal + (limit - equal) / 2;
    (a[middle] == b[middle] ? equal : limit) = a[middle] == b[middle] ? middle + 1 : middle;
  }
  return equal;
}

// Calls change(hash) for each hash. A set is larger than the processor's caches, so the slot of
// each hash is prefetched some hashes ahead.
template <typename Change>
void ForEach(const google::protobuf::RepeatedField<uint64_t>& hashes, const AgingSet& set,
             const Change& change) {
  constexpr int kAhead = 16;
  for (int i = 0; i < std::min(kAhead, hashes.size()); ++i) set.Prefetch(hashes[i]);
  for (int i = 0; i < hashes.size(); ++i) {
    if (i + kAhead < hashes.size()) set.Prefetch(hashes[i + kAhead]);
    change(hashes[i]);
  }
}

}  // namespace

absl::Status PrefixIndex::Check(const v1::CacheChanges& report, size_t most) {
  if (report.sequence() == 0) {
    return InvalidArgument("cache.sequence is 0: reports are numbered from 1");
  }
  const auto changes =
      static_cast<size_t>(report.added_size()) + static_cast<size_t>(report.removed_size());
  if (changes <= most) return absl::OkStatus();
  return InvalidArgument("cache has {} changes; at most {} are taken with one heartbeat", changes,
                         most);
}

PrefixIndex::Worker& PrefixIndex::Get(const WorkerId& id) {
  const auto [place, is_new] = workers_.try_emplace(id);
  if (is_new) SetShares();
  return place->second;
}

void PrefixIndex::SetShares() {
  for (auto& [id, worker] : workers_) worker.cached.SetMaxBytes(max_bytes_ / workers_.size());
}

uint64_t PrefixIndex::Apply(const WorkerId& id, const v1::CacheChanges& report) {
  absl::MutexLock lock(&mutex_);
  Worker& worker = Get(id);
  if (report.since() == 0) {
    worker.cached.Clear();
    use_.set_resets(use_.resets() + 1);
  } else if (report.since() != worker.sequence) {
    use_.set_refused(use_.refused() + 1);
    return worker.sequence;
  }
  AgingSet& cached = worker.cached;
  ForEach(report.removed(), cached, [&cached](uint64_t hash) { cached.Erase(hash); });
  ForEach(report.added(), cached, [&cached](uint64_t hash) { cached.Insert(hash); });
  use_.set_added(use_.added() + report.added_size());
  use_.set_removed(use_.removed() + report.removed_size());
  worker.sequence = report.sequence();
  if (report.more()) return worker.sequence;
  ++worker.complete_reports;
  EndExpected(worker, [&worker](const Expected& one) {
    return one.lapses_at != 0 && one.lapses_at <= worker.complete_reports;
  });
  return worker.sequence;
}

uint64_t PrefixIndex::Latest(const WorkerId& id) const {
  absl::MutexLock lock(&mutex_);
  const auto found = workers_.find(id);
  return found == workers_.end() ? 0 : found->second.sequence;
}

void PrefixIndex::KeepOnly(const ClusterView& view) {
  absl::MutexLock lock(&mutex_);
  const size_t before = workers_.size();
  for (auto it = workers_.begin(); it != workers_.end();) {
    if (std::ranges::binary_search(view.workers, it->first, {}, &WorkerView::id)) {
      ++it;
      continue;
    }
    use_.set_forgotten(use_.forgotten() + it->second.cached.num_forgotten());
    EndExpected(it->second, [](const Expected&) { return true; });
    it = workers_.erase(it);
  }
  if (workers_.size() != before) SetShares();
}

template <typename Predicate>
void PrefixIndex::EndExpected(Worker& worker, const Predicate& ends) {
  std::erase_if(worker.expected, [&](const Expected& one) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!ends(one)) return false;
    const auto first = expected_firsts_.find(one.first_hash);
    if (--first->second == 0) expected_firsts_.erase(first);
    return true;
  });
}

size_t PrefixIndex::ExpectedBlocks(const Worker& worker, const PromptHashes::Chain& chain) {
  if (chain.hashes.empty()) return 0;
  size_t blocks = 0;
  for (const Expected& one : worker.expected) {
    if (one.first_hash != chain.hashes.front() || one.chain->space != chain.space) continue;
    blocks = std::max(blocks, CommonPrefix(one.chain->hashes, chain.hashes));
  }
  return blocks;
}

std::vector<WorkerHit> PrefixIndex::Find(const PromptHashes& prompt) {
  std::vector<WorkerHit> hits;
  absl::MutexLock lock(&mutex_);
  bool is_expected = false;  // some worker may be computing a prompt with this first block
  for (const PromptHashes::Chain& chain : prompt.chains) {
    if (chain.hashes.empty()) continue;
    is_expected = is_expected || expected_firsts_.contains(chain.hashes.front());
    for (const auto& [id, worker] : workers_) worker.cached.Prefetch(chain.hashes.front());
  }
  for (const auto& [id, worker] : workers_) {
    int32_t tokens = 0;
    for (const PromptHashes::Chain& chain : prompt.chains) {
      size_t blocks = worker.cached.LongestPrefix(chain.hashes);
      if (is_expected) blocks = std::max(blocks, ExpectedBlocks(worker, chain));
      tokens = std::max(tokens, prompt.CachedTokens(chain, blocks));
    }
    if (tokens > 0) hits.push_back({.worker = id, .tokens = tokens});
  }
  use_.set_lookups(use_.lookups() + 1);
  if (!hits.empty()) use_.set_hits(use_.hits() + 1);
  return hits;
}

PrefixIndex::Expectation PrefixIndex::Expect(const WorkerRef& ref,
                                             std::shared_ptr<const PromptHashes> prompt) {
  const PromptHashes::Chain* const chain = prompt->Find(SpaceOf(*ref.info));
  if (chain == nullptr) return {};
  absl::MutexLock lock(&mutex_);
  Worker& worker = Get(ref.id);
  const size_t blocks =
      std::max(worker.cached.LongestPrefix(chain->hashes), ExpectedBlocks(worker, *chain));
  worker.cached.Touch(std::span(chain->hashes).first(blocks));
  if (worker.expected.size() == kMostExpected) {
    EndExpected(worker, [oldest = worker.expected.front().id](const Expected& one) {
      return one.id == oldest;
    });
  }
  const Expectation made = {.id = ++last_expectation_,
                            .predicted_tokens = prompt->CachedTokens(*chain, blocks)};
  const uint64_t first_hash = chain->hashes.empty() ? 0 : chain->hashes.front();
  ++expected_firsts_[first_hash];
  worker.expected.push_back({.id = made.id,
                             .first_hash = first_hash,
                             .chain = chain,
                             .prompt = std::move(prompt),
                             .lapses_at = 0});
  return made;
}

void PrefixIndex::Fulfil(const WorkerId& id, uint64_t expectation) {
  absl::MutexLock lock(&mutex_);
  const auto found = workers_.find(id);
  if (found == workers_.end()) return;
  for (Expected& one : found->second.expected) {
    if (one.id == expectation) one.lapses_at = found->second.complete_reports + kReportsUntilKnown;
  }
}

void PrefixIndex::Withdraw(const WorkerId& id, uint64_t expectation) {
  absl::MutexLock lock(&mutex_);
  const auto found = workers_.find(id);
  if (found == workers_.end()) return;
  EndExpected(found->second, [expectation](const Expected& one) {
    return one.id == expectation && one.lapses_at == 0;
  });
}

void PrefixIndex::Record(int32_t prompt_tokens, int32_t predicted_tokens, int32_t cached_tokens) {
  absl::MutexLock lock(&mutex_);
  use_.set_prompt_tokens(use_.prompt_tokens() + prompt_tokens);
  use_.set_predicted_tokens(use_.predicted_tokens() + predicted_tokens);
  use_.set_cached_tokens(use_.cached_tokens() + cached_tokens);
  use_.set_error_tokens(use_.error_tokens() + std::abs(predicted_tokens - cached_tokens));
}

v1::PrefixIndexUse PrefixIndex::Use() const {
  absl::MutexLock lock(&mutex_);
  v1::PrefixIndexUse use = use_;
  use.set_limit_bytes(max_bytes_);
  for (const auto& [id, worker] : workers_) {
    use.set_entries(use.entries() + worker.cached.size());
    use.set_bytes(use.bytes() + worker.cached.bytes());
    use.set_forgotten(use.forgotten() + worker.cached.num_forgotten());
  }
  return use;
}

}  // namespace tandem
