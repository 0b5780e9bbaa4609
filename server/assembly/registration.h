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
  v1::RegisterRequest self;              // everything but the load
  std::function<v1::WorkerLoad()> load;  // returns the present load; thread-safe
  // Called after every heartbeat with the workers that KV may be sent to, as all routers know them;
  // thread-safe. May be empty.
  std::function<void(const std::vector<v1::KvPeer>&)> kv_peers = {};
  // The journal of the prefix cache, which is reported to the routers that ask for it. Outlives the
  // registration; null: nothing is cached.
  const PrefixJournal* cached = nullptr;
  // Finds the addresses of the routers that follow DNS, again after every `look_up_every`. Outlives
  // the registration; null: the system's resolver.
  HostResolver* resolver = nullptr;
  Duration look_up_every = std::chrono::seconds(5);
  // Secures the calls; routers must present a certificate of the role router. Null: without TLS.
  std::shared_ptr<TlsSource> tls = nullptr;
};

// Keeps a worker registered with its routers: registers, renews the leases, registers again when a
// router has forgotten it or has restarted, and deregisters. One thread per router, asleep between
// heartbeats, and one that follows DNS where a name asks for it. Nothing here stops the worker from
// serving: without a router it goes on trying.
//
// A router whose address DNS no longer names stays linked while it answers, because it may be
// finishing requests of this worker; once it no longer answers, its link ends. While DNS does not
// answer, nothing changes.
class Registration {
 public:
  explicit Registration(RegistrationOptions options);
  // Stops as Stop does.
  ~Registration();

  // Reports a change of the load to the routers soon, many changes in one report.
  void Nudge();
  // Reports a change of the load to the routers at once, and ends the calls under way first: while
  // a thread of this process hangs, their answers might never be read. Never blocks.
  void TellNow();
  // Waits until, for each --router value, a router knows this worker: the router named, or one of
  // those that DNS names. Returns false when the worker leaves before.
  bool WaitUntilKnown();
  // The sorted addresses of all linked routers, whether or not they know this worker yet.
  std::vector<std::string> routers() const;
  // Announces to every router that this worker is leaving, so that it gets no new requests. The
  // leases are renewed until Stop, for the requests that it still serves. Idempotent.
  void Leave();
  // Deregisters from every router and ends all threads. Idempotent.
  void Stop();

 private:
  class Link;

  // A phase only ever changes to a later one.
  enum class Phase : uint8_t { kServing, kLeaving, kStopped };

  // Runs on its own thread: looks up names, starts links and joins the threads of links that have
  // ended.
  void FollowDns();
  // Starts links to those `addresses` that have none, and marks the links whose address is no
  // longer among them. Returns how many addresses are ignored, because there are kMaxRouters links.
  size_t Adopt(std::vector<std::vector<std::string>> addresses);
  void RemoveEndedLinks();
  bool IsKnownToEachName() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run(Link& link);
  // Registers with the router of `link`. OK: the router knows this worker now, and wants a
  // heartbeat every `heartbeat`. CANCELLED: the call was interrupted, so that nothing is known of
  // the router.
  absl::Status Join(Link& link, Duration& heartbeat);
  // Whether `link`, which does not know this worker, ends because DNS no longer names it.
  bool Abandon(Link& link);
  // Sends a heartbeat. False when the worker must register again; true when the lease was renewed
  // or the call was cancelled.
  bool Beat(Link& link);
  void Enter(Phase phase);
  Phase phase();
  // Sleeps for `duration`, or until the phase is no longer `during`, and then returns true.
  bool Sleep(Phase during, Duration duration);
  // Sleeps until the next heartbeat is due, or until shortly after a nudge that `link` has not
  // reported.
  void SleepUntilNews(Phase during, Link& link, Duration heartbeat);
  void TakeKvPeers(Link& link, const v1::HeartbeatResponse& response);
  // The KV peers that are named by any router which knows this worker. They are passed on only
  // after a heartbeat, so that the latest peers stay in use while no router answers.
  std::vector<v1::KvPeer> KvPeers() const ABSL_LOCKS_EXCLUDED(mutex_);

  const RegistrationOptions options_;
  mutable absl::Mutex mutex_;
  MonotonicCondVar changed_;  // signalled when one of the members below changes
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kServing;
  uint64_t nudges_ ABSL_GUARDED_BY(mutex_) = 0;
  // The addresses of the routers of each --router value.
  std::vector<std::vector<std::string>> addresses_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Link>> links_ ABSL_GUARDED_BY(mutex_);
  SystemResolver system_resolver_;
  RouterDirectory directory_;  // used by the constructor, and then only by dns_thread_
  std::thread dns_thread_;     // running only where a name follows DNS
};

}  // namespace tandem
