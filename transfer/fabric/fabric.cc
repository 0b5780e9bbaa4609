#include "transfer/fabric/fabric.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/status.h"
#include "base/thread_name.h"

namespace tandem {
namespace {

void Log(const PeerTable::Choice& choice) {
  if (!choice.fallback) return;
  const LinkSelector::Fallback& fallback = *choice.fallback;
  LogWarn("kv_peer={} fallback from={} to={} reason=\"{}\"", choice.peer, fallback.from,
          fallback.to, fallback.reason);
}

double Microseconds(Duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

void Log(const PeerTable::ProbeJob& job, const absl::StatusOr<LinkProbe>& probe) {
  if (probe.ok()) {
    const std::string setup =
        probe->setup ? fmt::format(" setup_us={:.0f}", Microseconds(*probe->setup)) : "";
    LogInfo("kv_peer={} transport={} gb_per_s={:.3g}{} operation_us={:.1f}", job.name,
            job.endpoint.transport, probe->gigabytes_per_second, setup,
            Microseconds(probe->operation));
  } else if (!absl::IsCancelled(probe.status())) {
    // A peer that is busy is asked again every second, and a link that stays broken is probed again
    // and again. Neither shall fill the log, so these failures are logged at debug level.
    const bool expected = job.later || absl::IsResourceExhausted(probe.status());
    Log(expected ? LogLevel::kDebug : LogLevel::kWarn,
        "kv_peer={} transport={} probe failed status=\"{}\"", job.name, job.endpoint.transport,
        probe.status().ToString());
  }
}

LinkStats StatsOf(const Transport& transport, std::string_view peer) {
  for (LinkStats& link : transport.links()) {
    if (link.peer == peer) return std::move(link);
  }
  return {};
}

}  // namespace

Fabric::Fabric(const FabricOptions& options, FrameReceiver* receiver, DeviceBuffer probe_memory,
               const Clock& clock)
    : options_(options),
      clock_(clock),
      probe_receiver_(receiver, options.epoch, std::move(probe_memory), clock) {}

absl::StatusOr<std::unique_ptr<Fabric>> Fabric::Open(const FabricOptions& options,
                                                     const std::vector<FabricPart>& parts,
                                                     FrameReceiver* receiver, const Clock& clock) {
  TANDEM_CHECK(!parts.empty(), "a fabric has a transport");
  ASSIGN_OR_RETURN(DeviceBuffer landing,
                   AllocateProbeMemory(options.device, ProbeReceiver::kMemoryBytes, false));
  std::unique_ptr<Fabric> fabric(new Fabric(options, receiver, std::move(landing), clock));
  std::span<const std::byte> probes;
  if (options.probe_extent_bytes > 0) {
    ASSIGN_OR_RETURN(
        DeviceBuffer source,
        AllocateProbeMemory(options.device, LinkProber::kMemoryBytes, options.share_probes));
    probes = source.bytes();
    fabric->prober_.emplace(options.probe_extent_bytes, std::move(source), clock);
  }
  for (const FabricPart& part : parts) {
    ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport,
                     part.open(&fabric->probe_receiver_, probes));
    fabric->parts_.push_back({.name = part.name, .transport = std::move(transport)});
  }
  if (fabric->prober_) {
    fabric->probe_thread_ = std::thread([raw = fabric.get()] { raw->RunProbes(); });
  }
  return fabric;
}

Fabric::~Fabric() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    probes_changed_.Signal();
  }
  if (prober_) prober_->Stop();
  if (probe_thread_.joinable()) probe_thread_.join();
}

Transport* Fabric::Find(std::string_view name) const {
  const auto found = std::ranges::find(parts_, name, &Part::name);
  return found == parts_.end() ? nullptr : found->transport.get();
}

Transport& Fabric::TransportOf(const Endpoint& endpoint) const {
  Transport* const transport = Find(endpoint.transport);
  TANDEM_CHECK(transport != nullptr, "an endpoint of a transport that this worker lacks");
  return *transport;
}

std::string Fabric::address() const {
  std::vector<Endpoint> endpoints;
  for (const Part& part : parts_) endpoints.push_back({part.name, part.transport->address()});
  return ToText(endpoints);
}

absl::StatusOr<Fabric::SortedEndpoints> Fabric::Sort(std::string_view peer) const {
  ASSIGN_OR_RETURN(const std::vector<Endpoint> offered, ParseEndpoints(peer));
  SortedEndpoints sorted;
  for (const Endpoint& endpoint : offered) {
    const Transport* transport = Find(endpoint.transport);
    const absl::Status status = transport != nullptr
                                    ? transport->MayReach(endpoint.address)
                                    : Unavailable("this worker has no such transport");
    if (status.ok()) {
      sorted.reachable.push_back(endpoint);
      continue;
    }
    const std::string reason(status.message());
    sorted.reasons +=
        fmt::format("{}{}: {}", sorted.reasons.empty() ? "" : "; ", endpoint.transport, reason);
    if (transport != nullptr) {
      sorted.unreachable.push_back({.endpoint = endpoint, .reason = reason});
    }
  }
  return sorted;
}

absl::StatusOr<std::vector<Endpoint>> Fabric::ReachableEndpoints(std::string_view peer) const {
  ASSIGN_OR_RETURN(SortedEndpoints sorted, Sort(peer));
  if (!sorted.reachable.empty()) return std::move(sorted.reachable);
  return FailedPrecondition(
      "no endpoint of {} can be reached: {}; see --kv-transport on both sides", peer,
      sorted.reasons);
}

absl::Status Fabric::MayReach(std::string_view peer) const {
  const absl::Status status = ReachableEndpoints(peer).status();
  return absl::IsFailedPrecondition(status) ? Unavailable("{}", std::string(status.message()))
                                            : status;
}

absl::StatusOr<StreamHandle> Fabric::OpenStream(std::string_view peer, uint64_t stream,
                                                uint64_t epoch, Duration renew_every,
                                                StreamEnded ended) {
  ASSIGN_OR_RETURN(const std::vector<Endpoint> endpoints, ReachableEndpoints(peer));
  absl::StatusOr<StreamHandle> opened = Unavailable("no endpoint of {} may be reached", peer);
  for (size_t tries = 0; tries < endpoints.size() && absl::IsUnavailable(opened.status());
       ++tries) {
    const PeerTable::Choice choice = peers_.Choose(peer, endpoints, clock_.Now());
    Log(choice);
    opened = TransportOf(choice.endpoint)
                 .OpenStream(choice.endpoint.address, stream, epoch, renew_every,
                             [this, use = choice.use, ended](uint64_t id, uint64_t of_epoch,
                                                             const absl::Status& why) {
                               OnEnded(use, why);
                               ended(id, of_epoch, why);
                             });
    if (!opened.ok()) peers_.Ended(choice.use, opened.status(), clock_.Now());
  }
  return opened;
}

void Fabric::OnEnded(const PeerTable::Use& use, const absl::Status& status) {
  peers_.Ended(use, status, clock_.Now());
  absl::MutexLock lock(&mutex_);
  if (!probe_waits_) return;
  woken_ = true;
  probes_changed_.Signal();
}

std::vector<LinkStats> Fabric::AllLinks() const {
  std::vector<LinkStats> all;
  for (const Part& part : parts_) {
    for (LinkStats& link : part.transport->links()) {
      link.transport = part.name;
      all.push_back(std::move(link));
    }
  }
  return all;
}

std::vector<LinkStats> Fabric::links() const {
  std::vector<LinkStats> all;
  for (PeerLink& link : peer_links()) all.push_back(std::move(link.stats));
  return all;
}

std::vector<PeerLink> Fabric::peer_links() const { return peers_.Describe(AllLinks()); }

TransportStats Fabric::stats() const {
  // The bytes of probes are read before those of the parts, so that the sums below include them.
  // Even so, a probe may have counted frames that are not sent yet.
  const uint64_t probes_sent = prober_ ? prober_->bytes_sent() : 0;
  const uint64_t probes_received = probe_receiver_.bytes_received();
  TransportStats sum;
  sum.buffer_bytes = probe_receiver_.buffer_bytes() + (prober_ ? prober_->buffer_bytes() : 0);
  for (const Part& part : parts_) {
    const TransportStats one = part.transport->stats();
    sum.refused.malformed += one.refused.malformed;
    sum.refused.corrupted += one.refused.corrupted;
    sum.refused.stale += one.refused.stale;
    sum.refused.unauthenticated += one.refused.unauthenticated;
    sum.refused.closed += one.refused.closed;
    sum.buffer_bytes += one.buffer_bytes;
    sum.bytes_sent += one.bytes_sent;
    sum.bytes_received += one.bytes_received;
  }
  sum.bytes_sent -= std::min(sum.bytes_sent, probes_sent);
  sum.bytes_received -= std::min(sum.bytes_received, probes_received);
  return sum;
}

void Fabric::SetPeers(const std::vector<FabricPeer>& peers) {
  std::vector<KnownPeer> known;
  for (const FabricPeer& peer : peers) {
    auto endpoints = Sort(peer.address);
    if (!endpoints.ok()) {
      LogDebug("kv_peer={} status=\"{}\"", peer.name, endpoints.status().ToString());
      continue;
    }
    known.push_back({.name = peer.name,
                     .epoch = peer.epoch,
                     .address = peer.address,
                     .endpoints = std::move(endpoints->reachable),
                     .unreachable = std::move(endpoints->unreachable)});
  }
  const TimePoint now = clock_.Now();
  for (const PeerLink& link : peers_.SetPeers(known, now)) {
    // Shared memory of another host is unreachable by design, so this is no warning.
    LogInfo("kv_peer={} transport={} is not used reason=\"{}\"", link.peer, link.stats.transport,
            link.unreachable);
  }
  peers_.LookForReprobes(AllLinks(), now);
  absl::MutexLock lock(&mutex_);
  woken_ = true;
  probes_changed_.Signal();
}

void Fabric::RunProbes() {
  NameThisThread("kv-probes");
  while (true) {
    const PeerTable::Next next = peers_.NextProbe(clock_.Now());
    if (next.job) Probe(*next.job);
    absl::MutexLock lock(&mutex_);
    const auto awake = [this]()
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return woken_ || stopping_; };
    probe_waits_ = next.ask_again != kNoDeadline;
    if (!next.job) {
      const TimePoint until = next.ask_again == kNoDeadline ? kNoDeadline
                                                            : std::chrono::steady_clock::now() +
                                                                  (next.ask_again - clock_.Now());
      probes_changed_.AwaitUntil(mutex_, until, awake);
    }
    if (stopping_) return;
    woken_ = false;
  }
}

void Fabric::Probe(const PeerTable::ProbeJob& job) {
  Transport& transport = TransportOf(job.endpoint);
  const uint64_t connects_before = StatsOf(transport, job.endpoint.address).connects;
  auto probe = prober_->Measure(transport, job.endpoint.address, job.epoch);
  const LinkStats link = StatsOf(transport, job.endpoint.address);
  if (probe.ok() && link.connects == connects_before) probe->setup.reset();
  peers_.Probed(job, probe, link, clock_.Now());
  Log(job, probe);
}

}  // namespace tandem
