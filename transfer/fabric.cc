#include "transfer/fabric.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "base/check.h"
#include "base/status.h"
#include "base/thread_name.h"
#include "spdlog/spdlog.h"
#include "transfer/probe_memory.h"

namespace tandem {
namespace {

void Log(const PeerTable::Choice& choice) {
  if (!choice.fallback) return;
  const PeerPaths::Fallback& fallback = *choice.fallback;
  spdlog::warn("kv_peer={} fallback from={} to={} reason=\"{}\"", choice.peer, fallback.from,
               fallback.to, fallback.reason);
}

double Microseconds(Duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

void Log(const PeerTable::ProbeJob& job, const absl::StatusOr<LinkProbe>& probe) {
  if (probe.ok()) {
    const std::string setup =
        probe->setup ? fmt::format(" setup_us={:.0f}", Microseconds(*probe->setup)) : "";
    spdlog::info("kv_peer={} transport={} gb_per_s={:.3g}{} operation_us={:.1f}", job.name,
                 job.endpoint.transport, probe->gigabytes_per_second, setup,
                 Microseconds(probe->operation));
  } else if (!absl::IsCancelled(probe.status())) {
    // Of a way that stays as it is there would be a line every 30 s.
    spdlog::log(job.later ? spdlog::level::debug : spdlog::level::warn,
                "kv_peer={} transport={} probe failed status=\"{}\"", job.name,
                job.endpoint.transport, probe.status().ToString());
  }
}

void Log(const PeerTable::AlarmChange& change) {
  spdlog::log(change.on ? spdlog::level::warn : spdlog::level::info,
              "kv_peer={} transport={} {} fastest_gb_per_s={:.3g} best_probe_gb_per_s={:.3g}",
              change.peer, change.transport, change.on ? "slow" : "no longer slow",
              change.fastest_gigabytes_per_second, change.best_gigabytes_per_second);
}

// Of another host it is as it should be.
void LogUnreachable(const PeerLink& link) {
  spdlog::info("kv_peer={} transport={} is not used reason=\"{}\"", link.peer, link.stats.transport,
               link.unreachable);
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
  }
  if (prober_) prober_->Stop();
  if (probe_thread_.joinable()) probe_thread_.join();
}

Transport* Fabric::Find(std::string_view name) const {
  const auto found = std::find_if(parts_.begin(), parts_.end(),
                                  [name](const Part& part) { return part.name == name; });
  return found == parts_.end() ? nullptr : found->transport.get();
}

std::string Fabric::address() const {
  std::vector<Endpoint> endpoints;
  for (const Part& part : parts_) endpoints.push_back({part.name, part.transport->address()});
  return ToText(endpoints);
}

absl::StatusOr<Fabric::Ways> Fabric::Sort(std::string_view peer) const {
  ASSIGN_OR_RETURN(const std::vector<Endpoint> offered, ParseEndpoints(peer));
  Ways ways;
  for (const Endpoint& endpoint : offered) {
    const Transport* transport = Find(endpoint.transport);
    const absl::Status status = transport != nullptr
                                    ? transport->MayReach(endpoint.address)
                                    : Unavailable("this worker has no such transport");
    if (status.ok()) {
      ways.open.push_back(endpoint);
      continue;
    }
    const std::string reason(status.message());
    ways.why_none +=
        fmt::format("{}{}: {}", ways.why_none.empty() ? "" : "; ", endpoint.transport, reason);
    if (transport != nullptr) ways.unreachable.push_back({.endpoint = endpoint, .reason = reason});
  }
  return ways;
}

absl::StatusOr<std::vector<Endpoint>> Fabric::WaysTo(std::string_view peer) const {
  ASSIGN_OR_RETURN(Ways ways, Sort(peer));
  if (!ways.open.empty()) return std::move(ways.open);
  return FailedPrecondition("no way leads to {}: {}; see --kv-transport on both sides", peer,
                            ways.why_none);
}

absl::Status Fabric::MayReach(std::string_view peer) const {
  const absl::Status status = WaysTo(peer).status();
  return absl::IsFailedPrecondition(status) ? Unavailable("{}", std::string(status.message()))
                                            : status;
}

absl::Status Fabric::OpenStream(std::string_view peer, uint64_t stream, uint64_t epoch,
                                Duration renew_every, StreamEnded ended) {
  ASSIGN_OR_RETURN(const std::vector<Endpoint> ways, WaysTo(peer));
  const StreamToOpen wanted = {.key = {.stream = stream, .epoch = epoch},
                               .renew_every = renew_every,
                               .ended = std::move(ended)};
  absl::Status status;
  for (size_t tries = 0; tries < ways.size(); ++tries) {
    const PeerTable::Choice choice = peers_.Choose(peer, ways, clock_.Now());
    Log(choice);
    status = OpenOn(choice, wanted);
    if (!absl::IsUnavailable(status)) break;
  }
  return status;
}

absl::Status Fabric::OpenOn(const PeerTable::Choice& choice, const StreamToOpen& stream) {
  Transport* const transport = Find(choice.endpoint.transport);
  TANDEM_CHECK(transport != nullptr, "only ways with a transport are offered");
  bool taken = false;
  {
    absl::MutexLock lock(&mutex_);
    taken = routes_.try_emplace(stream.key, Route{transport, choice.use}).second;
  }
  absl::Status status =
      taken
          ? transport->OpenStream(
                choice.endpoint.address, stream.key.stream, stream.key.epoch, stream.renew_every,
                [this, ended = stream.ended](uint64_t id, uint64_t epoch, const absl::Status& why) {
                  OnEnded({.stream = id, .epoch = epoch}, why);
                  ended(id, epoch, why);
                })
          : Internal("stream {} is open already", stream.key.stream);
  if (status.ok()) return status;
  if (taken) {
    absl::MutexLock lock(&mutex_);
    routes_.erase(stream.key);
  }
  peers_.Ended(choice.use, status, clock_.Now());
  return status;
}

void Fabric::OnEnded(StreamKey key, const absl::Status& status) {
  PeerTable::Use use;
  {
    absl::MutexLock lock(&mutex_);
    const auto route = routes_.find(key);
    TANDEM_CHECK(route != routes_.end(), "a stream ended twice");
    use = std::move(route->second.use);
    routes_.erase(route);
    if (probe_waits_) woken_ = true;
  }
  peers_.Ended(use, status, clock_.Now());
}

Transport* Fabric::RouteOf(StreamKey key) const {
  absl::MutexLock lock(&mutex_);
  const auto route = routes_.find(key);
  return route == routes_.end() ? nullptr : route->second.transport;
}

absl::Status Fabric::Post(uint64_t stream, uint64_t epoch, std::span<const PostedExtent> extents) {
  Transport* const transport = RouteOf({.stream = stream, .epoch = epoch});
  if (transport == nullptr) return absl::OkStatus();  // it has ended
  return transport->Post(stream, epoch, extents);
}

absl::Status Fabric::FinishStream(uint64_t stream, uint64_t epoch) {
  Transport* const transport = RouteOf({.stream = stream, .epoch = epoch});
  return transport == nullptr ? absl::OkStatus() : transport->FinishStream(stream, epoch);
}

void Fabric::AbortStream(uint64_t stream, uint64_t epoch) {
  // Not there: it has ended, and what ends a stream lets go of its payloads first.
  if (Transport* const transport = RouteOf({.stream = stream, .epoch = epoch})) {
    transport->AbortStream(stream, epoch);
  }
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

RefusedFrames Fabric::refused() const {
  RefusedFrames sum;
  for (const Part& part : parts_) {
    const RefusedFrames one = part.transport->refused();
    sum.malformed += one.malformed;
    sum.corrupted += one.corrupted;
    sum.stale += one.stale;
    sum.strangers += one.strangers;
    sum.closed += one.closed;
  }
  return sum;
}

size_t Fabric::buffer_bytes() const {
  size_t sum = probe_receiver_.buffer_bytes() + (prober_ ? prober_->buffer_bytes() : 0);
  for (const Part& part : parts_) sum += part.transport->buffer_bytes();
  return sum;
}

uint64_t Fabric::bytes_sent() const {
  const uint64_t probes = prober_ ? prober_->bytes_sent() : 0;
  uint64_t sum = 0;
  for (const Part& part : parts_) sum += part.transport->bytes_sent();
  return sum - std::min(sum, probes);  // what a probe has posted may not be sent yet
}

uint64_t Fabric::bytes_received() const {
  const uint64_t probes = probe_receiver_.bytes_received();
  uint64_t sum = 0;
  for (const Part& part : parts_) sum += part.transport->bytes_received();
  return sum - std::min(sum, probes);
}

void Fabric::SetPeers(const std::vector<FabricPeer>& peers) {
  std::vector<KnownPeer> known;
  for (const FabricPeer& peer : peers) {
    auto ways = Sort(peer.address);
    if (!ways.ok()) {
      spdlog::debug("kv_peer={} status=\"{}\"", peer.name, ways.status().ToString());
      continue;
    }
    known.push_back({.name = peer.name,
                     .epoch = peer.epoch,
                     .address = peer.address,
                     .endpoints = std::move(ways->open),
                     .unreachable = std::move(ways->unreachable)});
  }
  const TimePoint now = clock_.Now();
  for (const PeerLink& link : peers_.SetPeers(known, now)) LogUnreachable(link);
  const std::vector<LinkStats> links = AllLinks();
  for (const auto& change : peers_.LookForSlowLinks(links)) Log(change);
  peers_.LookForReprobes(links, now);
  WakeProber();
}

void Fabric::WakeProber() {
  absl::MutexLock lock(&mutex_);
  woken_ = true;
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
      const Duration wait = next.ask_again - clock_.Now();
      mutex_.AwaitWithTimeout(absl::Condition(&awake), next.ask_again == kNoDeadline
                                                           ? absl::InfiniteDuration()
                                                           : absl::FromChrono(wait));
    }
    if (stopping_) return;
    woken_ = false;
  }
}

void Fabric::Probe(const PeerTable::ProbeJob& job) {
  Transport* const transport = Find(job.endpoint.transport);
  TANDEM_CHECK(transport != nullptr, "only ways with a transport are offered");
  const uint64_t connects_before = StatsOf(*transport, job.endpoint.address).connects;
  auto probe = prober_->Measure(*transport, job.endpoint.address, job.epoch);
  const LinkStats link = StatsOf(*transport, job.endpoint.address);
  if (probe.ok() && link.connects == connects_before) probe->setup.reset();
  peers_.Probed(job, probe, link, clock_.Now());
  Log(job, probe);
}

}  // namespace tandem
