#include "server/assembly/registration.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status.h"
#include "base/thread_name.h"
#include "fmt/format.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "security/grpc/channel_tls.h"
#include "server/services/status_mapping.h"
#include "server/services/worker_messages.h"
#include "tandem/v1/cluster.grpc.pb.h"

namespace tandem {
namespace {

constexpr std::chrono::seconds kCallTimeout(2);
constexpr std::chrono::milliseconds kGoodbyeTimeout(500);
// The delay between a nudge and the report: long enough to collect a burst of changes, short enough
// for a fresh view.
constexpr Duration kNudgeDelay = std::chrono::milliseconds(50);

// The waits between attempts to register: they double from 50 ms to 2 s, and each is shortened by a
// random part of up to half, so that workers that lost their router together do not return
// together.
class BackOff {
 public:
  Duration Next() {
    std::uniform_real_distribution<double> part(0.5, 1.0);
    const auto wait = std::chrono::duration_cast<Duration>(next_ * part(random_));
    next_ = std::min<Duration>(next_ * 2, std::chrono::seconds(2));
    return wait;
  }
  void Reset() { next_ = kFirst; }

 private:
  static constexpr Duration kFirst = std::chrono::milliseconds(50);
  Duration next_ = kFirst;
  std::minstd_rand random_{std::random_device()()};
};

// How often the absence of a router is logged at most, because it may be long.
constexpr std::chrono::seconds kAwayLogInterval(10);

// Reports to one router which prefixes are cached here. Thread: that of the router's link.
class CacheReports {
 public:
  explicit CacheReports(const PrefixJournal* journal) {
    if (journal != nullptr) reader_.emplace(*journal);
  }

  // Forgets what the router asked for, because it may be another process than before: its next
  // answer tells again how many changes it wants.
  void OnRegistered() { most_changes_ = 0; }
  void AddTo(v1::HeartbeatRequest& request) {
    if (!reader_ || most_changes_ == 0) return;
    *request.mutable_cache() = ToProto(reader_->Next(confirmed_, most_changes_));
  }
  void OnAnswer(const v1::HeartbeatRequest& request, const v1::HeartbeatResponse& response) {
    confirmed_ = response.cache_sequence();
    most_changes_ = response.most_cache_changes();
    is_behind_ = reader_ && most_changes_ > 0 && (!request.has_cache() || request.cache().more());
  }
  // Whether the next report should not wait for the next regular heartbeat.
  bool is_behind() const { return is_behind_; }

 private:
  std::optional<PrefixReader> reader_;  // nothing: this worker has no prefix cache
  uint64_t confirmed_ = 0;
  uint32_t most_changes_ = 0;  // most changes in one report; 0: the router wants none
  bool is_behind_ = false;
};

// Parses the values of --router. CheckAddresses has refused invalid ones before a registration is
// made, so that an error here is a bug.
std::vector<RouterName> ParsedNames(const std::vector<std::string>& routers) {
  std::vector<RouterName> names;
  for (const std::string& router : routers) {
    absl::StatusOr<RouterName> name = ParseRouterName(router);
    TANDEM_CHECK(name.ok(), name.status().ToString());
    names.push_back(*std::move(name));
  }
  return names;
}

}  // namespace

// The connection to one router. Used by its own thread only, except for Interrupt.
class Registration::Link {
 public:
  Link(const std::string& router, const RegistrationOptions& options)
      : cache_reports(options.cached), router_(router), tls_(options.tls) {
    Connect(CurrentOf(tls_));
  }

  // A number to pass to the next call, taken before its request is put together: Interrupt then
  // ends the call even if it has not begun.
  uint64_t Turn() {
    absl::MutexLock lock(&mutex_);
    return interrupts_;
  }

  // Registers the worker, and returns the heartbeat interval that the router asks for.
  absl::StatusOr<Duration> Register(const v1::RegisterRequest& request, uint64_t turn) {
    v1::RegisterResponse response;
    RETURN_IF_ERROR(Call(turn, [&](grpc::ClientContext& context) {
      context.set_wait_for_ready(true);  // so that it registers as soon as the router is reachable
      return Stub().Register(&context, request, &response);
    }));
    return std::chrono::milliseconds(std::max<int64_t>(response.heartbeat_ms(), 10));
  }

  absl::StatusOr<v1::HeartbeatResponse> Heartbeat(const v1::HeartbeatRequest& request,
                                                  uint64_t turn) {
    v1::HeartbeatResponse response;
    RETURN_IF_ERROR(Call(turn, [&](grpc::ClientContext& context) {
      return Stub().Heartbeat(&context, request, &response);
    }));
    return response;
  }

  void Deregister(const v1::RegisterRequest& self) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kGoodbyeTimeout);
    v1::DeregisterRequest request;
    request.set_name(self.name());
    request.set_incarnation(self.incarnation());
    v1::DeregisterResponse response;
    const grpc::Status status = Stub().Deregister(&context, request, &response);
    if (!status.ok()) LogDebug("router={} not told of leaving", router_);
  }

  // Logs that the router did not accept the registration, and why.
  void ReportRefusal(const absl::Status& status) {
    if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) {
      return LogWarn("router={} does not take us status=\"{}\"", router_, status.ToString());
    }
    const TimePoint now = std::chrono::steady_clock::now();
    if (now < logged_away_ + kAwayLogInterval) return;
    logged_away_ = now;
    LogWarn("router={} cannot be reached, is tried on status=\"{}\"", router_, status.ToString());
  }

  // Ends the call in progress with CANCELLED.
  void Interrupt() {
    absl::MutexLock lock(&mutex_);
    ++interrupts_;
    if (context_ != nullptr) context_->TryCancel();
  }

  const std::string& router() const { return router_; }
  CacheReports cache_reports;
  uint64_t nudges_told = 0;  // value of nudges_ at the last report of the load
  std::thread thread;        // runs Registration::Run; set before others see the link
  // Members that the mutex of the registration guards. `known` is written by the link's thread
  // alone, which therefore reads it without the mutex.
  bool known = false;                // whether the router accepted the registration
  bool named = true;                 // whether a --router value still has this address
  bool ended = false;                // whether `thread` is about to end or has ended
  std::vector<v1::KvPeer> kv_peers;  // from the router's latest answer

 private:
  void Connect(std::shared_ptr<const TlsMaterial> material) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
    stub_ = v1::Cluster::NewStub(grpc::CreateCustomChannel(
        router_, NewChannelCredentials(material.get(), {.roles = {IdentityRole::kRouter}}),
        arguments));
    material_ = std::move(material);
  }
  // The stub to call the router by, over a new channel once the certificate has been replaced.
  v1::Cluster::Stub& Stub() {
    if (auto latest = CurrentOf(tls_); latest != material_) Connect(std::move(latest));
    return *stub_;
  }

  template <typename Ask>
  absl::Status Call(uint64_t turn, const Ask& ask) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
    {
      absl::MutexLock lock(&mutex_);
      if (interrupts_ != turn) return Cancelled("interrupted");
      context_ = &context;
    }
    const grpc::Status status = ask(context);
    absl::MutexLock lock(&mutex_);
    context_ = nullptr;
    return ToAbslStatus(status);
  }

  const std::string router_;
  const std::shared_ptr<TlsSource> tls_;
  std::shared_ptr<const TlsMaterial> material_;  // the TLS material that stub_ was made with
  TimePoint logged_away_ = TimePoint::min() + kAwayLogInterval;  // time of the last warning
  std::unique_ptr<v1::Cluster::Stub> stub_;
  absl::Mutex mutex_;  // held across TryCancel, which never blocks and runs no callback
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;  // of the call under way
  uint64_t interrupts_ ABSL_GUARDED_BY(mutex_) = 0;
};

Registration::Registration(RegistrationOptions options)
    : options_(std::move(options)),
      directory_(ParsedNames(options_.routers),
                 options_.resolver != nullptr ? *options_.resolver : system_resolver_) {
  Adopt(directory_.addresses());
  if (directory_.follows_dns()) dns_thread_ = std::thread([this] { FollowDns(); });
}

Registration::~Registration() { Stop(); }

void Registration::Nudge() {
  absl::MutexLock lock(&mutex_);
  ++nudges_;
  changed_.Signal();
}

void Registration::TellNow() {
  Nudge();
  absl::MutexLock lock(&mutex_);
  for (auto& link : links_) link->Interrupt();
}

bool Registration::WaitUntilKnown() {
  absl::MutexLock lock(&mutex_);
  const auto known = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return IsKnownToEachName() || phase_ != Phase::kServing;
  };
  changed_.AwaitUntil(mutex_, kNoDeadline, known);
  return phase_ == Phase::kServing;
}

void Registration::Leave() { Enter(Phase::kLeaving); }

std::vector<std::string> Registration::routers() const {
  std::vector<std::string> all;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& link : links_) all.push_back(link->router());
  }
  std::sort(all.begin(), all.end());
  return all;
}

void Registration::Stop() {
  Enter(Phase::kStopped);
  if (dns_thread_.joinable()) dns_thread_.join();
  std::vector<std::thread> threads;  // no other thread starts links now
  {
    absl::MutexLock lock(&mutex_);
    for (auto& link : links_) threads.push_back(std::move(link->thread));
  }
  for (std::thread& thread : threads) {
    if (thread.joinable()) thread.join();
  }
}

void Registration::Enter(Phase phase) {
  absl::MutexLock lock(&mutex_);
  if (phase_ >= phase) return;
  phase_ = phase;
  changed_.Signal();
  for (auto& link : links_) link->Interrupt();
}

void Registration::FollowDns() {
  NameThisThread("router-names");
  std::minstd_rand random{std::random_device()()};
  // Varies the time between DNS look-ups, so that workers which were started together do not go on
  // asking DNS together.
  std::uniform_real_distribution<double> part(0.75, 1.25);
  std::vector<std::string> before;
  do {
    directory_.LookUp();
    RemoveEndedLinks();
    const size_t ignored = Adopt(directory_.addresses());
    if (std::vector<std::string> now = routers(); now != before) {
      LogInfo("routers={} ignored={}", fmt::join(now, ","), ignored);
      before = std::move(now);
    }
  } while (!Sleep(Phase::kServing,
                  std::chrono::duration_cast<Duration>(options_.look_up_every * part(random))));
}

void Registration::RemoveEndedLinks() {
  std::vector<std::unique_ptr<Link>> ended;
  {
    absl::MutexLock lock(&mutex_);
    const auto first_ended = std::stable_partition(links_.begin(), links_.end(),
                                                   [](const auto& link) { return !link->ended; });
    std::move(first_ended, links_.end(), std::back_inserter(ended));
    links_.erase(first_ended, links_.end());
  }
  for (auto& link : ended) link->thread.join();
}

size_t Registration::Adopt(std::vector<std::vector<std::string>> addresses) {
  std::set<std::string> wanted;
  for (const auto& of_name : addresses) wanted.insert(of_name.begin(), of_name.end());
  absl::MutexLock lock(&mutex_);
  addresses_ = std::move(addresses);
  if (phase_ != Phase::kServing) return 0;
  for (auto& link : links_) link->named = wanted.erase(link->router()) > 0;
  size_t ignored = 0;
  for (const std::string& router : wanted) {
    if (links_.size() >= kMaxRouters) {
      ++ignored;
      continue;
    }
    Link& link = *links_.emplace_back(std::make_unique<Link>(router, options_));
    link.thread = std::thread([this, &link] { Run(link); });
  }
  changed_.Signal();  // a name may now lead to a router that knows this worker already
  return ignored;
}

bool Registration::IsKnownToEachName() const {
  std::set<std::string> known;
  for (const auto& link : links_) {
    if (link->known) known.insert(link->router());
  }
  const auto is_known = [&known](const std::string& address) { return known.contains(address); };
  return std::all_of(addresses_.begin(), addresses_.end(), [&](const auto& of_name) {
    return std::any_of(of_name.begin(), of_name.end(), is_known);
  });
}

bool Registration::Abandon(Link& link) {
  absl::MutexLock lock(&mutex_);
  link.ended = !link.named;
  return link.ended;
}

Registration::Phase Registration::phase() {
  absl::MutexLock lock(&mutex_);
  return phase_;
}

bool Registration::Sleep(Phase during, Duration duration) {
  absl::MutexLock lock(&mutex_);
  const auto over = [this, during]()
                        ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return phase_ != during; };
  return changed_.AwaitFor(mutex_, duration, over);
}

void Registration::SleepUntilNews(Phase during, Link& link, Duration heartbeat) {
  {
    absl::MutexLock lock(&mutex_);
    const auto news = [this, during, &link]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return phase_ != during || nudges_ != link.nudges_told || link.cache_reports.is_behind();
    };
    if (!changed_.AwaitFor(mutex_, heartbeat, news)) return;
  }
  Sleep(during, kNudgeDelay);
  absl::MutexLock lock(&mutex_);
  link.nudges_told = nudges_;
}

std::vector<v1::KvPeer> Registration::KvPeers() const {
  absl::MutexLock lock(&mutex_);
  std::map<std::string, v1::KvPeer> peers;  // by name; the latest epoch of a peer counts
  for (const auto& link : links_) {
    for (const v1::KvPeer& peer : link->kv_peers) {
      v1::KvPeer& known = peers[peer.name()];
      if (known.epoch() < peer.epoch()) known = peer;
    }
  }
  std::vector<v1::KvPeer> all;
  for (auto& [name, peer] : peers) all.push_back(std::move(peer));
  return all;
}

void Registration::TakeKvPeers(Link& link, const v1::HeartbeatResponse& response) {
  if (!options_.kv_peers) return;
  {
    absl::MutexLock lock(&mutex_);
    link.kv_peers.assign(response.kv_peers().begin(), response.kv_peers().end());
  }
  options_.kv_peers(KvPeers());
}

void Registration::Run(Link& link) {
  NameThisThread("heartbeat");
  BackOff back_off;
  Duration heartbeat{};
  bool sent_leaving = false;
  for (Phase now = phase(); now != Phase::kStopped; now = phase()) {
    if (!link.known && now == Phase::kLeaving)
      break;  // the router does not know this worker, so there is nothing to end
    if (!link.known) {
      const absl::Status joined = Join(link, heartbeat);
      if (!joined.ok()) {
        if (!absl::IsCancelled(joined) && Abandon(link)) return;
        Sleep(now, back_off.Next());
        continue;
      }
    }
    back_off.Reset();
    if (now == Phase::kLeaving && !std::exchange(sent_leaving, true)) {
      link.Deregister(options_.self);
    }
    SleepUntilNews(now, link, heartbeat);
    if (phase() != now || Beat(link)) continue;
    absl::MutexLock lock(&mutex_);
    link.known = false;
    link.kv_peers.clear();
  }
  if (!link.known) return;
  if (!sent_leaving) link.Deregister(options_.self);
  link.Deregister(options_.self);
}

absl::Status Registration::Join(Link& link, Duration& heartbeat) {
  const uint64_t turn = link.Turn();
  v1::RegisterRequest request = options_.self;
  *request.mutable_load() = options_.load();
  const auto registered = link.Register(request, turn);
  if (!registered.ok()) {
    if (!absl::IsCancelled(registered.status())) link.ReportRefusal(registered.status());
    return registered.status();
  }
  LogInfo("router={} registered", link.router());
  heartbeat = *registered;
  link.cache_reports.OnRegistered();
  absl::MutexLock lock(&mutex_);
  link.known = true;
  changed_.Signal();
  return absl::OkStatus();
}

bool Registration::Beat(Link& link) {
  const uint64_t turn = link.Turn();
  v1::HeartbeatRequest request;
  request.set_name(options_.self.name());
  request.set_incarnation(options_.self.incarnation());
  *request.mutable_load() = options_.load();
  request.set_leaving(phase() != Phase::kServing);
  link.cache_reports.AddTo(request);
  const auto response = link.Heartbeat(request, turn);
  if (response.ok()) {
    link.cache_reports.OnAnswer(request, *response);
    TakeKvPeers(link, *response);
    return true;
  }
  const absl::Status& status = response.status();
  // The call was cancelled by a change of phase or by TellNow: the router still knows this worker.
  if (absl::IsCancelled(status)) return true;
  // The router has forgotten this worker, is gone or was replaced: in any case the next call
  // registers again.
  LogInfo("router={} heartbeat failed status=\"{}\"", link.router(), status.ToString());
  return false;
}

}  // namespace tandem
