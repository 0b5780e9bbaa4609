#include "transfer/peer_table.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

namespace tandem {
namespace {

std::vector<std::string> TransportsOf(const std::vector<Endpoint>& endpoints) {
  std::vector<std::string> names;
  for (const Endpoint& endpoint : endpoints) names.push_back(endpoint.transport);
  return names;
}

bool LeadsTo(const LinkStats& link, const Endpoint& endpoint) {
  return link.transport == endpoint.transport && link.peer == endpoint.address;
}

const LinkStats* LinkOf(const Endpoint& endpoint, std::span<const LinkStats> links) {
  const auto found = std::find_if(links.begin(), links.end(), [&endpoint](const LinkStats& link) {
    return LeadsTo(link, endpoint);
  });
  return found == links.end() ? nullptr : &*found;
}

}  // namespace

PeerTable::Peer PeerTable::MakePeer(const std::vector<Endpoint>& endpoints) {
  Peer peer{.serial = next_serial_++,
            .name = {},
            .epoch = 0,
            .ways = {},
            .paths = PeerPaths(TransportsOf(endpoints))};
  for (const Endpoint& endpoint : endpoints) peer.ways.push_back({.endpoint = endpoint});
  return peer;
}

PeerTable::Peer* PeerTable::Find(const std::string& peer, uint64_t serial) {
  const auto found = peers_.find(peer);
  return found != peers_.end() && found->second.serial == serial ? &found->second : nullptr;
}

bool PeerTable::IsSame(const Peer& peer, const KnownPeer& named) {
  return peer.name == named.name && peer.epoch == named.epoch;
}

void PeerTable::SetPeers(const std::vector<KnownPeer>& peers, TimePoint now) {
  absl::MutexLock lock(&mutex_);
  std::set<std::string_view> there;
  for (const KnownPeer& named : peers) {
    if (named.endpoints.empty() || there.size() == kMaxNamed) continue;
    there.insert(named.address);
    const auto known = peers_.find(named.address);
    if (known != peers_.end() && IsSame(known->second, named)) continue;
    // One that streams went to before it was named goes on as it is.
    const bool goes_on = known != peers_.end() && known->second.name.empty();
    Peer peer = goes_on ? std::move(known->second) : MakePeer(named.endpoints);
    peer.name = named.name;
    peer.epoch = named.epoch;
    for (Way& way : peer.ways) {
      way.probe_wanted = true;
      way.wanted_since = now;
    }
    peers_.insert_or_assign(named.address, std::move(peer));
  }
  std::erase_if(peers_, [&there](const auto& entry) {
    return !entry.second.name.empty() && !there.contains(entry.first);
  });
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
  PeerPaths::Choice choice = chosen.paths.Choose(now);
  return {.endpoint = chosen.ways[choice.use.path].endpoint,
          .use = {.peer = found->first, .serial = chosen.serial, .path = choice.use},
          .peer = chosen.name.empty() ? found->first : chosen.name,
          .fallback = std::move(choice.fallback)};
}

void PeerTable::Ended(const Use& use, const absl::Status& status, TimePoint now) {
  absl::MutexLock lock(&mutex_);
  Peer* peer = Find(use.peer, use.serial);
  if (peer == nullptr) return;
  --peer->open_streams;
  NoteEnd(peer->ways[use.path.path], status);
  if (status.ok()) {
    peer->paths.Worked(use.path);
  } else if (absl::IsUnavailable(status)) {
    peer->paths.Failed(use.path, now, std::string(status.message()));
  } else {
    peer->paths.GaveUp(use.path);
  }
}

void PeerTable::NoteEnd(Way& way, const absl::Status& status) {
  if (status.ok()) way.failure.clear();
  const bool failed = absl::IsUnavailable(status) || absl::IsFailedPrecondition(status);
  if (failed) way.failure = std::string(status.message());
}

PeerTable::Next PeerTable::NextProbe(TimePoint now) {
  absl::MutexLock lock(&mutex_);
  Next next;
  for (auto& [address, peer] : peers_) {
    for (size_t i = 0; i < peer.ways.size(); ++i) {
      Way& way = peer.ways[i];
      if (!way.probe_wanted) continue;
      TimePoint due = way.not_before;
      if (peer.open_streams > 0) due = std::max(due, way.wanted_since + kProbePatience);
      if (due > now) {
        // While streams are open, any end of one may be the moment.
        next.ask_again = std::min(next.ask_again, due);
        continue;
      }
      way.probe_wanted = false;
      next.job = ProbeJob{.peer = address,
                          .serial = peer.serial,
                          .name = peer.name,
                          .epoch = peer.epoch,
                          .way = i,
                          .use = peer.paths.UseOf(i),
                          .endpoint = way.endpoint};
      return next;
    }
  }
  return next;
}

void PeerTable::Probed(const ProbeJob& job, const absl::StatusOr<LinkProbe>& probe,
                       const LinkStats& link, TimePoint now) {
  absl::MutexLock lock(&mutex_);
  Peer* peer = Find(job.peer, job.serial);
  if (peer == nullptr) return;
  Way& way = peer->ways[job.way];
  way.not_before = now + kProbePause;
  way.probed_connects = link.connects;
  way.probed_bytes = link.payload_bytes;
  NoteEnd(way, probe.status());
  if (probe.ok()) {
    way.failed_probes = 0;
    way.probe = *probe;
    peer->paths.SetRate(job.way, probe->gigabytes_per_second);
    peer->paths.Worked(job.use);
    return;
  }
  if (absl::IsUnavailable(probe.status())) {
    peer->paths.Failed(job.use, now, std::string(probe.status().message()));
  }
  if (++way.failed_probes >= kProbeTries) return;  // until it is connected to again
  way.probe_wanted = true;
  way.wanted_since = now;
}

void PeerTable::LookForReconnects(std::span<const LinkStats> links, TimePoint now) {
  absl::MutexLock lock(&mutex_);
  for (auto& [address, peer] : peers_) {
    if (peer.name.empty()) continue;
    for (Way& way : peer.ways) {
      const LinkStats* link = LinkOf(way.endpoint, links);
      if (link == nullptr || way.probe_wanted || !way.probed_connects) continue;
      if (link->connects <= *way.probed_connects) continue;
      way.probe_wanted = true;
      way.wanted_since = now;
      way.failed_probes = 0;
    }
  }
}

std::vector<PeerLink> PeerTable::Describe(std::span<const LinkStats> links) const {
  absl::MutexLock lock(&mutex_);
  std::vector<PeerLink> described;
  for (const auto& [address, peer] : peers_) {
    for (size_t i = 0; i < peer.ways.size(); ++i) {
      const Way& way = peer.ways[i];
      const LinkStats* link = LinkOf(way.endpoint, links);
      PeerLink& entry = described.emplace_back();
      entry.peer = peer.name.empty() ? address : peer.name;
      entry.stats = link != nullptr ? *link : LinkStats();
      entry.stats.peer = way.endpoint.address;
      entry.stats.transport = way.endpoint.transport;
      entry.in_use = peer.paths.in_use() == i;
      entry.fallbacks = peer.paths.fallbacks();
      entry.fallback_reason = peer.paths.fallback_reason();
      entry.failure = way.failure;
      if (!way.probe) continue;
      LinkStats& stats = entry.stats;
      stats.probe_gigabytes_per_second = way.probe->gigabytes_per_second;
      stats.probe_setup = way.probe->setup;
      stats.probe_operation = way.probe->operation;
      const uint64_t since =
          stats.payload_bytes > way.probed_bytes ? stats.payload_bytes - way.probed_bytes : 0;
      stats.alarm = FarBelowProbe(*way.probe, stats.gigabytes_per_second, since);
    }
  }
  return described;
}

}  // namespace tandem
