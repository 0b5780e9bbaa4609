#include "transfer/peer_table.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
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
            .paths = PeerPaths(TransportsOf(endpoints)),
            .past = {}};
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

std::vector<PeerLink> PeerTable::SetPeers(const std::vector<KnownPeer>& peers, TimePoint now) {
  absl::MutexLock lock(&mutex_);
  std::map<std::string_view, const KnownPeer*> there;
  for (const KnownPeer& named : peers) {
    if (!named.endpoints.empty() && there.size() < kMaxNamed) there[named.address] = &named;
  }
  // First, so that those who come under the same names find what was counted.
  std::erase_if(peers_, [&](const auto& entry) {
    mutex_.AssertHeld();
    const auto& [address, peer] = entry;
    if (peer.name.empty()) return false;
    const auto named = there.find(address);
    const bool leaves = named == there.end() || !IsSame(peer, *named->second);
    if (leaves) Remember(peer);
    return leaves;
  });
  for (const auto& [address, named] : there) {
    const auto known = peers_.find(address);
    if (known != peers_.end() && !known->second.name.empty()) continue;
    // One that streams went to before it was named goes on as it is.
    Peer peer = known != peers_.end() ? std::move(known->second) : MakePeer(named->endpoints);
    peer.name = named->name;
    peer.epoch = named->epoch;
    if (auto past = past_.extract(named->name)) peer.past = std::move(past.mapped());
    for (Way& way : peer.ways) WantProbe(way, now);
    peers_.insert_or_assign(std::string(address), std::move(peer));
  }
  return SetUnreachable(peers);
}

PeerTable::Past PeerTable::SumOf(const Peer& peer) {
  Past sum = peer.past;
  sum.fallbacks += peer.paths.fallbacks();
  if (peer.paths.fallbacks() > 0) sum.fallback_reason = peer.paths.fallback_reason();
  for (const Way& way : peer.ways) sum.alarms[way.endpoint.transport] += way.alarm.times();
  return sum;
}

void PeerTable::Remember(const Peer& peer) {
  const Past sum = SumOf(peer);
  Past& past = past_[peer.name];  // there already where two had the name at once
  past.left = ++left_;
  past.fallbacks += sum.fallbacks;
  if (!sum.fallback_reason.empty()) past.fallback_reason = sum.fallback_reason;
  for (const auto& [transport, times] : sum.alarms) past.alarms[transport] += times;
  if (past_.size() <= kMaxNamed) return;
  past_.erase(std::min_element(past_.begin(), past_.end(), [](const auto& a, const auto& b) {
    return a.second.left < b.second.left;
  }));
}

std::vector<PeerLink> PeerTable::SetUnreachable(const std::vector<KnownPeer>& peers) {
  const auto key = [](const PeerLink& link) {
    return std::tuple(link.peer, link.stats.transport, link.stats.peer);
  };
  std::set<std::tuple<std::string, std::string, std::string>> before;
  for (const PeerLink& link : std::exchange(unreachable_, {})) before.insert(key(link));
  std::vector<PeerLink> fresh;
  for (const KnownPeer& peer : peers) {
    for (const UnreachableWay& way : peer.unreachable) {
      if (unreachable_.size() == kMaxNamed) return fresh;
      PeerLink& link = unreachable_.emplace_back();
      link.peer = peer.name;
      link.stats.peer = way.endpoint.address;
      link.stats.transport = way.endpoint.transport;
      link.unreachable = way.reason;
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
  const std::string reason(status.message());
  if (status.ok()) return peer->paths.Worked(use.path);
  if (absl::IsUnavailable(status)) return peer->paths.Failed(use.path, now, reason);
  if (!absl::IsDataLoss(status)) return peer->paths.GaveUp(use.path);
  peer->paths.Damaged(use.path, now, reason);
  Way& way = peer->ways[use.path.path];
  way.failed_probes = kProbeTries;
  way.not_before = now + kProbePause;
}

void PeerTable::NoteEnd(Way& way, const absl::Status& status) {
  if (status.ok()) way.failure.clear();
  const bool failed =
      absl::IsUnavailable(status) || absl::IsFailedPrecondition(status) || absl::IsDataLoss(status);
  if (failed) way.failure = std::string(status.message());
}

void PeerTable::WantProbe(Way& way, TimePoint now) {
  way.probe_wanted = true;
  way.wanted_since = now;
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
                          .endpoint = way.endpoint,
                          .later = way.failed_probes >= kProbeTries};
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
  NoteEnd(way, probe.status());
  way.probe_failure = probe.ok() ? "" : probe.status().ToString();
  if (probe.ok()) {
    NoteProbe(way, *probe);
    peer->paths.SetRate(job.way, probe->gigabytes_per_second);
    peer->paths.Worked(job.use);
    return;
  }
  const std::string reason(probe.status().message());
  if (absl::IsDataLoss(probe.status())) {
    peer->paths.Damaged(job.use, now, reason);
  } else if (!absl::IsResourceExhausted(probe.status()) && !absl::IsCancelled(probe.status())) {
    peer->paths.Failed(job.use, now, reason);
  }
  if (++way.failed_probes < kProbeTries) WantProbe(way, now);
}

void PeerTable::NoteProbe(Way& way, const LinkProbe& probe) {
  const std::optional<Duration> setup = way.probe ? way.probe->setup : std::nullopt;
  way.failed_probes = 0;
  way.probe = probe;
  if (!way.probe->setup) way.probe->setup = setup;
  way.best_gigabytes_per_second =
      std::max(way.best_gigabytes_per_second, probe.gigabytes_per_second);
}

bool PeerTable::IsToBeProbedLater(const Way& way) {
  return way.alarm.on() || way.failed_probes >= kProbeTries;
}

Duration PeerTable::ProbePauseOf(const Way& way) {
  const int doublings = std::clamp(way.failed_probes - kProbeTries, 0, 4);
  return std::min(kLaterProbePause * (1 << doublings), kLongestProbePause);
}

void PeerTable::LookForReprobes(std::span<const LinkStats> links, TimePoint now) {
  absl::MutexLock lock(&mutex_);
  for (auto& [address, peer] : peers_) {
    if (peer.name.empty()) continue;
    for (Way& way : peer.ways) {
      if (way.probe_wanted) continue;
      const LinkStats* link = LinkOf(way.endpoint, links);
      if (link != nullptr && way.probed_connects && link->connects > *way.probed_connects) {
        WantProbe(way, now);
        way.failed_probes = 0;
      }
      const TimePoint later = way.not_before + (ProbePauseOf(way) - kProbePause);
      if (IsToBeProbedLater(way) && now >= later) WantProbe(way, now);
    }
  }
}

std::vector<PeerTable::AlarmChange> PeerTable::LookForSlowLinks(std::span<const LinkStats> links) {
  absl::MutexLock lock(&mutex_);
  std::vector<AlarmChange> changes;
  for (auto& [address, peer] : peers_) {
    for (Way& way : peer.ways) {
      const LinkStats* link = LinkOf(way.endpoint, links);
      if (link == nullptr) continue;
      if (way.alarm.Update(way.best_gigabytes_per_second, link->fastest_gigabytes_per_second)) {
        changes.push_back({.peer = peer.name,
                           .transport = way.endpoint.transport,
                           .on = way.alarm.on(),
                           .best_gigabytes_per_second = way.best_gigabytes_per_second,
                           .fastest_gigabytes_per_second = link->fastest_gigabytes_per_second});
      }
    }
  }
  return changes;
}

PeerLink PeerTable::Describe(const Peer& peer, const std::string& address, size_t index,
                             std::span<const LinkStats> links) {
  const Way& way = peer.ways[index];
  const Past counts = SumOf(peer);
  const LinkStats* link = LinkOf(way.endpoint, links);
  PeerLink entry;
  entry.peer = peer.name.empty() ? address : peer.name;
  entry.stats = link != nullptr ? *link : LinkStats();
  LinkStats& stats = entry.stats;
  stats.peer = way.endpoint.address;
  stats.transport = way.endpoint.transport;
  stats.alarm = way.alarm.on();
  stats.alarms = counts.alarms.at(way.endpoint.transport);
  entry.in_use = peer.paths.in_use() == index;
  entry.fallbacks = counts.fallbacks;
  entry.fallback_reason = counts.fallback_reason;
  entry.failure = way.failure;
  entry.probe_failure = way.probe_failure;
  if (!way.probe) return entry;
  stats.probe_gigabytes_per_second = way.probe->gigabytes_per_second;
  stats.best_gigabytes_per_second = way.best_gigabytes_per_second;
  stats.probe_setup = way.probe->setup.value_or(Duration::zero());
  stats.probe_operation = way.probe->operation;
  return entry;
}

std::vector<PeerLink> PeerTable::Describe(std::span<const LinkStats> links) const {
  absl::MutexLock lock(&mutex_);
  std::vector<PeerLink> described;
  for (const auto& [address, peer] : peers_) {
    for (size_t way = 0; way < peer.ways.size(); ++way) {
      described.push_back(Describe(peer, address, way, links));
    }
  }
  described.insert(described.end(), unreachable_.begin(), unreachable_.end());
  return described;
}

}  // namespace tandem
