#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/condition_variable.h"
#include "kvstore/prefix_journal.h"
#include "security/tls_source.h"
#include "server/assembly/host_resolver.h"
#include "server/assembly/router_directory.h"
#include "tandem/v1/cluster.pb.h"

namespace tandem {

struct RegistrationOptions {
  std::vector<std::string> routers;      // values of --router that ParseRouterName takes
  v1::RegisterRequest self;              // all but the load
  std::function<v1::WorkerLoad()> load;  // thread-safe
  // Told, after every heartbeat, of the workers that KV may be sent to, as all routers know them;
  // thread-safe. May be empty.
  std::function<void(const std::vector<v1::KvPeer>&)> kv_peers = {};
  // What the worker has cached, which is reported to the routers that ask for it. Outlives the
  // registration; null: nothing is cached.
  const PrefixJournal* cached = nullptr;
  // Finds the addresses of the routers that follow DNS, now and then every `look_up_every`. Outlives
  // the registration; null: the system's.
  HostResolver* resolver = nullptr;
  Duration look_up_every = std::chrono::seconds(5);
  // Secures the calls; routers must show the identity of a router. Null: without TLS.
  std::shared_ptr<TlsSource> tls = nullptr;
};

// Keeps a worker known to its routers: registers, renews the leases, registers again when a router
// has forgotten it or came back, and takes its leave. One thread per router, asleep between
// heartbeats, and one that follows DNS where a name asks for it. Nothing here stops the worker from
// serving: without a router it goes on trying.
//
// A router whose address DNS no longer names stays linked while it answers, because it may be
// finishing requests of this worker; once it no longer answers, its link ends. While DNS does not
// answer, nothing changes.
class Registration {
 public:
  explicit Registration(RegistrationOptions options);
  // As Stop.
  ~Registration();

  // The load has changed: reports that to the routers soon, many changes in one report.
  void Nudge();
  // The same at once, of what must not wait for the answer to a call that is under way: whatever
  // hangs here may keep it from being read. Never blocks.
  void TellNow();
  // Returns true once this worker is known to a router of each --router value: to that router, or to
  // one of those that DNS names. False once it leaves.
  bool WaitUntilKnown();
  // The addresses of the routers that know this worker or are being tried, sorted.
  std::vector<std::string> routers() const;
  // Tells every router that this worker is leaving: it gets nothing new. The leases are renewed
  // until Stop, for what it still serves. Idempotent.
  void Leave();
  // Leaves, takes its name off every router's list and ends. Idempotent.
  void Stop();

 private:
  class Link;

  // kServing -> kLeaving -> kStopped
  enum class Phase : uint8_t { kServing, kLeaving, kStopped };

  // The thread that looks up names, starts links and joins the threads of links that have ended.
  void FollowDns();
  // Starts links to the addresses that have none, and marks the links whose address is no longer
  // among them. Returns how many addresses are ignored, because there are kMaxRouters links.
  size_t Adopt(std::vector<std::vector<std::string>> addresses);
  void RemoveEndedLinks();
  bool IsKnownToEachName() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run(Link& link);
  // OK: `link` knows this worker now, and wants to hear from it every `heartbeat`. CANCELLED: the
  // call was interrupted, so that nothing is known of the router.
  absl::Status Join(Link& link, Duration& heartbeat);
  // Whether `link`, which does not know this worker, ends because DNS no longer names it.
  bool Abandon(Link& link);
  // Whether the lease is renewed, or nothing is known of that.
  bool Beat(Link& link);
  void Enter(Phase phase);
  Phase phase();
  // True when the wait ended because the phase is no longer `during`.
  bool Sleep(Phase during, Duration duration);
  // Sleeps until the next heartbeat is due, or a moment after a nudge that `link` has not reported.
  void SleepUntilNews(Phase during, Link& link, Duration heartbeat);
  void TakeKvPeers(Link& link, const v1::HeartbeatResponse& response);
  // The KV peers that any router knows to which this worker is registered. While there is no such router
  // the latest known peers stay.
  std::vector<v1::KvPeer> KvPeers() const ABSL_LOCKS_EXCLUDED(mutex_);

  const RegistrationOptions options_;
  mutable absl::Mutex mutex_;
  MonotonicCondVar changed_;  // of what follows
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kServing;
  uint64_t nudges_ ABSL_GUARDED_BY(mutex_) = 0;
  // For each --router value the addresses of its routers.
  std::vector<std::vector<std::string>> addresses_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Link>> links_ ABSL_GUARDED_BY(mutex_);
  SystemResolver system_resolver_;
  RouterDirectory directory_;  // used by the constructor, then by dns_thread_ alone
  std::thread dns_thread_;     // only where a name follows DNS
};

}  // namespace tandem
