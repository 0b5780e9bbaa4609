#include "transfer/fabric/peer_table.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

namespace tandem {
namespace {

const LinkStats* StatsOf(const Endpoint& endpoint, std::span<const LinkStats> links) {
  const auto found = std::ranges::find_if(links, [&endpoint](const LinkStats& link) {
    return link.transport == endpoint.transport && link.peer == endpoint.address;
  });
  return found == links.end() ? nullptr : &*found;
}

}  // namespace

PeerTable::Peer PeerTable::MakePeer(const std::vector<Endpoint>& endpoints) {
  std::vector<Link> links;
  std::vector<std::string> transports;
  for (const Endpoint& endpoint : endpoints) {
    links.push_back({.endpoint = endpoint});
    transports.push_back(endpoint.transport);
  }
  return {
      .serial = next_serial_++, .links = std::move(links), .selector = LinkSelector(transports)};
}

PeerTable::Peer* PeerTable::Find(const Use& use) {
  const auto found = peers_.find(use.peer);
  return found != peers_.end() && found->second.serial == use.serial ? &found->second : nullptr;
}

std::vector<PeerLink> PeerTable::SetPeers(const std::vector<KnownPeer>& peers, TimePoint now) {
  absl::MutexLock lock(&mutex_);
  std::map<std::string_view, const KnownPeer*> present;
  for (const KnownPeer& peer : peers) {
    if (!peer.endpoints.empty() && present.size() < kMaxNamed) present[peer.address] = &peer;
  }
  std::erase_if(peers_, [&present](const auto& entry) {
    const auto& [address, peer] = entry;
    if (peer.name.empty()) return false;
    const auto named = present.find(address);
    return named == present.end() || peer.name != named->second->name ||
           peer.epoch != named->second->epoch;
  });
  for (const auto& [address, named] : present) {
    const auto known = peers_.find(address);
    if (known != peers_.end() && !known->second.name.empty()) continue;
    // A peer that streams went to before a router named it keeps its state.
    Peer peer = known != peers_.end() ? std::move(known->second) : MakePeer(named->endpoints);
    peer.name = named->name;
    peer.epoch = named->epoch;
    for (Link& link : peer.links) link.WantProbe(now);
    peers_.insert_or_assign(std::string(address), std::move(peer));
  }
  return SetUnreachable(peers);
}

std::vector<PeerLink> PeerTable::SetUnreachable(const std::vector<KnownPeer>& peers) {
  const auto key = [](const PeerLink& link) {
    return std::tuple(link.peer, link.stats.transport, link.stats.peer);
  };
  std::set<std::tuple<std::string, std::string, std::string>> before;
  for (const PeerLink& link : std::exchange(unreachable_, {})) before.insert(key(link));
  std::vector<PeerLink> fresh;
  for (const KnownPeer& peer : peers) {
    for (const UnreachableEndpoint& unreachable : peer.unreachable) {
      if (unreachable_.size() == kMaxNamed) return fresh;
      PeerLink& link = unreachable_.emplace_back();
      link.peer = peer.name;
      link.stats.peer = unreachable.endpoint.address;
      link.stats.transport = unreachable.endpoint.transport;
      link.unreachable = unreachable.reason;
      if (!before.contains(key(link))) fresh.push_back(link);
    }
  }
  return fresh;
}

void PeerTable::DropOldestUnnamed() {
  auto oldest = peers_.end();
  size_t unnamed = 0;
  for (auto at = peers_.begin(); at != peers_.end(); ++at) {
    if (!at->second.name.empty()) continue;
    ++unnamed;
    if (oldest == peers_.end() || at->second.last_opened < oldest->second.last_opened) oldest = at;
  }
  if (unnamed > kMaxUnnamed) peers_.erase(oldest);
}

PeerTable::Choice PeerTable::Choose(std::string_view peer, const std::vector<Endpoint>& endpoints,
                                    TimePoint now) {
  absl::MutexLock lock(&mutex_);
  auto found = peers_.find(peer);
  if (found == peers_.end()) {
    found = peers_.emplace(std::string(peer), MakePeer(endpoints)).first;
    found->second.last_opened = ++opened_;
    DropOldestUnnamed();
  }
  Peer& chosen = found->second;
  chosen.last_opened = ++opened_;
  ++chosen.open_streams;
  LinkSelector::Choice choice = chosen.selector.Choose(now);
  return {.endpoint = chosen.links[choice.use.link].endpoint,
          .use = {.peer = found->first, .serial = chosen.serial, .link = choice.use},
          .peer = chosen.name.empty() ? found->first : chosen.name,
          .fallback = std::move(choice.fallback)};
}

void PeerTable::Ended(const Use& use, const absl::Status& status, TimePoint now) {
  absl::MutexLock lock(&mutex_);
  Peer* peer = Find(use);
  if (peer == nullptr) return;
  --peer->open_streams;
  Link& link = peer->links[use.link.link];
  link.NoteEnd(status);
  const std::string reason(status.message());
  if (status.ok()) return peer->selector.Worked(use.link);
  if (absl::IsUnavailable(status)) return peer->selector.Failed(use.link, now, reason);
  if (!absl::IsDataLoss(status)) return peer->selector.GaveUp(use.link);
  peer->selector.Damaged(use.link, now, reason);
  link.failed_probes = kProbeTries;
  link.not_before = now + kProbePause;
}

void PeerTable::Link::NoteEnd(const absl::Status& status) {
  if (status.ok()) failure.clear();
  const bool failed =
      absl::IsUnavailable(status) || absl::IsFailedPrecondition(status) || absl::IsDataLoss(status);
  if (failed) failure = std::string(status.message());
}

void PeerTable::Link::WantProbe(TimePoint now) {
  probe_wanted = true;
  wanted_since = now;
}

PeerTable::Next PeerTable::NextProbe(TimePoint now) {
  absl::MutexLock lock(&mutex_);
  Next next;
  for (auto& [address, peer] : peers_) {
    for (size_t i = 0; i < peer.links.size(); ++i) {
      Link& link = peer.links[i];
      if (!link.probe_wanted) continue;
      TimePoint due = link.not_before;
      if (peer.open_streams > 0) due = std::max(due, link.wanted_since + kProbePatience);
      if (due > now) {
        next.ask_again = std::min(next.ask_again, due);
        continue;
      }
      link.probe_wanted = false;
      next.job =
          ProbeJob{.use = {.peer = address, .serial = peer.serial, .link = peer.selector.UseOf(i)},
                   .name = peer.name,
                   .epoch = peer.epoch,
                   .endpoint = link.endpoint,
                   .later = link.failed_probes >= kProbeTries};
      return next;
    }
  }
  return next;
}

void PeerTable::Probed(const ProbeJob& job, const absl::StatusOr<LinkProbe>& probe,
                       const LinkStats& stats, TimePoint now) {
  absl::MutexLock lock(&mutex_);
  Peer* peer = Find(job.use);
  if (peer == nullptr) return;
  const LinkSelector::Use use = job.use.link;
  Link& link = peer->links[use.link];
  link.probed_connects = stats.connects;
  if (absl::IsResourceExhausted(probe.status())) {
    link.not_before = now + kBusyPause;
    return link.WantProbe(now);
  }
  link.not_before = now + kProbePause;
  link.NoteEnd(probe.status());
  link.probe_failure = probe.ok() ? "" : probe.status().ToString();
  if (probe.ok()) {
    link.NoteProbe(*probe);
    peer->selector.SetRate(use.link, probe->gigabytes_per_second);
    return peer->selector.Worked(use);
  }
  const std::string reason(probe.status().message());
  if (absl::IsDataLoss(probe.status())) {
    peer->selector.Damaged(use, now, reason);
  } else if (!absl::IsCancelled(probe.status())) {
    peer->selector.Failed(use, now, reason);
  }
  if (++link.failed_probes < kProbeTries) link.WantProbe(now);
}

void PeerTable::Link::NoteProbe(const LinkProbe& result) {
  const std::optional<Duration> setup = probe ? probe->setup : std::nullopt;
  failed_probes = 0;
  probe = result;
  if (!probe->setup) probe->setup = setup;
  best_gigabytes_per_second = std::max(best_gigabytes_per_second, result.gigabytes_per_second);
}

bool PeerTable::Link::IsSlow(const LinkStats* stats) const {
  return stats != nullptr && stats->fastest_gigabytes_per_second > 0 &&
         stats->fastest_gigabytes_per_second < best_gigabytes_per_second * kSlowShare;
}

void PeerTable::LookForReprobes(std::span<const LinkStats> links, TimePoint now) {
  absl::MutexLock lock(&mutex_);
  for (auto& [address, peer] : peers_) {
    if (peer.name.empty()) continue;
    for (Link& link : peer.links) {
      if (link.probe_wanted) continue;
      const LinkStats* stats = StatsOf(link.endpoint, links);
      if (stats != nullptr && link.probed_connects && stats->connects > *link.probed_connects) {
        link.WantProbe(now);
        link.failed_probes = 0;
      }
      const int doublings = std::clamp(link.failed_probes - kProbeTries, 0, 4);
      const Duration pause = std::min(kLaterProbePause * (1 << doublings), kLongestProbePause);
      const bool wanted = link.IsSlow(stats) || link.failed_probes >= kProbeTries;
      if (wanted && now >= link.not_before + (pause - kProbePause)) link.WantProbe(now);
    }
  }
}

PeerLink PeerTable::Describe(const Peer& peer, const std::string& address, size_t index,
                             std::span<const LinkStats> links) {
  const Link& link = peer.links[index];
  const LinkStats* counted = StatsOf(link.endpoint, links);
  PeerLink entry;
  entry.peer = peer.name.empty() ? address : peer.name;
  entry.address = address;
  entry.stats = counted != nullptr ? *counted : LinkStats();
  LinkStats& stats = entry.stats;
  stats.peer = link.endpoint.address;
  stats.transport = link.endpoint.transport;
  entry.in_use = peer.selector.in_use() == index;
  entry.fallbacks = peer.selector.fallbacks();
  entry.fallback_reason = peer.selector.fallback_reason();
  entry.failure = link.failure;
  entry.probe_failure = link.probe_failure;
  if (!link.probe) return entry;
  stats.probe_gigabytes_per_second = link.probe->gigabytes_per_second;
  stats.best_gigabytes_per_second = link.best_gigabytes_per_second;
  stats.probe_setup = link.probe->setup.value_or(Duration::zero());
  stats.probe_operation = link.probe->operation;
  return entry;
}

std::vector<PeerLink> PeerTable::Describe(std::span<const LinkStats> links) const {
  absl::MutexLock lock(&mutex_);
  std::vector<PeerLink> described;
  for (const auto& [address, peer] : peers_) {
    for (size_t index = 0; index < peer.links.size(); ++index) {
      described.push_back(Describe(peer, address, index, links));
    }
  }
  described.insert(described.end(), unreachable_.begin(), unreachable_.end());
  return described;
}

}  // namespace tandem
