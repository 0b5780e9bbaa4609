#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "transfer/endpoints.h"
#include "transfer/link_alarm.h"
#include "transfer/link_probe.h"
#include "transfer/link_stats.h"
#include "transfer/peer_paths.h"

namespace tandem {

// A way that is never tried, by nature: another host's shared memory.
struct UnreachableWay {
  Endpoint endpoint;
  std::string reason;
};

// A worker that KV may be sent to.
struct KnownPeer {
  std::string name;
  uint64_t epoch = 0;
  std::string address;              // all its endpoints, as text: what names it in the table
  std::vector<Endpoint> endpoints;  // those that may be reached from here
  std::vector<UnreachableWay> unreachable;
};

// One way to one peer, for status pages.
struct PeerLink {
  std::string peer;     // its name, or its address as long as nobody has named it
  LinkStats stats;      // the probe's figures and the alarm included
  bool in_use = false;  // of the ways to this peer: that the latest stream took
  // Of the peer: times that a better way was given up for another. Of a named one since this table
  // was made, also when the peer was started anew, as is stats.alarms.
  uint64_t fallbacks = 0;
  std::string fallback_reason;  // of the latest
  // Why the latest stream or probe on it failed with the connection: it was lost, never made,
  // damaged what it brought, or the two do not agree (TLS, version). Empty once one succeeded.
  std::string failure;
  std::string probe_failure;  // why the latest probe found nothing; empty: it did
  std::string unreachable;    // as UnreachableWay's; then the way has nothing else
};

// The peers of a fabric: which way the next stream to each takes, what their probes found, and
// which way is to be probed next, and which is slow. Those that SetPeers does not name are kept
// while they are among the kMaxUnnamed latest. Does no I/O. Thread-safe.
class PeerTable {
 public:
  static constexpr size_t kMaxUnnamed = 256;
  static constexpr size_t kMaxNamed = 4096;
  // A probe waits for so long for a moment without streams to that peer.
  static constexpr Duration kProbePatience = std::chrono::seconds(10);
  // Between two probes of one way, be it that the first failed.
  static constexpr Duration kProbePause = std::chrono::seconds(10);
  // A probe that failed so often in a row is repeated after kLaterProbePause only.
  static constexpr int kProbeTries = 3;
  // A way that is slow, has damaged a stream or cannot be probed is probed again so often: streams
  // take another way meanwhile, and it is seen when it is well again. From failure to failure the
  // pause doubles up to the longest: what a failed try takes of the peer may be little but for good
  // (NcclContext::kMaxUnusedIds).
  static constexpr Duration kLaterProbePause = std::chrono::seconds(30);
  static constexpr Duration kLongestProbePause = std::chrono::minutes(8);

  // Names the peers that there are; named ones that are missing are forgotten, and one that has
  // another epoch or other endpoints begins anew, but for its counts, which are kept for the latest
  // kMaxNamed names. Those that are new want probes. The ways that cannot be reached and were not
  // there at the call before.
  std::vector<PeerLink> SetPeers(const std::vector<KnownPeer>& peers, TimePoint now);

  // A stream that is open, for Ended.
  struct Use {
    std::string peer;
    uint64_t serial = 0;  // of the peer's entry
    PeerPaths::Use path;
  };
  struct Choice {
    Endpoint endpoint;
    Use use;
    std::string peer;  // name or address
    std::optional<PeerPaths::Fallback> fallback;
  };
  // The way that a stream to `peer` takes, which counts as open until Ended. `endpoints`, at least
  // one, are looked at when the peer is not known.
  Choice Choose(std::string_view peer, const std::vector<Endpoint>& endpoints, TimePoint now);
  // UNAVAILABLE and DATA_LOSS tell of the way: the next stream takes another if there is one.
  void Ended(const Use& use, const absl::Status& status, TimePoint now);

  struct ProbeJob {
    std::string peer;
    uint64_t serial = 0;
    std::string name;
    uint64_t epoch = 0;
    size_t way = 0;
    PeerPaths::Use use;
    Endpoint endpoint;
    bool later = false;  // several have failed, and this is one after kLaterProbePause
  };
  // The way to be probed now; else, when one waits, when to ask again (kNoDeadline: none waits).
  struct Next {
    std::optional<ProbeJob> job;
    TimePoint ask_again = kNoDeadline;
  };
  Next NextProbe(TimePoint now);
  // `link`: of the way, after the probe. A way whose probe failed is left as after a stream that
  // did, unless the peer had no room for a probe (RESOURCE_EXHAUSTED) or it was CANCELLED.
  void Probed(const ProbeJob& job, const absl::StatusOr<LinkProbe>& probe, const LinkStats& link,
              TimePoint now);
  // Wants a probe of each way on which a connection was made since its last, and of those whose
  // kLaterProbePause is over.
  void LookForReprobes(std::span<const LinkStats> links, TimePoint now);

  // An alarm that went on or off.
  struct AlarmChange {
    std::string peer;  // name
    std::string transport;
    bool on = false;
    double best_gigabytes_per_second = 0;
    double fastest_gigabytes_per_second = 0;  // of late
  };
  // Compares the rate of each way with the best probe of its peer's life. Not with the latest: a
  // probe of a link that has become slow would end the alarm.
  std::vector<AlarmChange> LookForSlowLinks(std::span<const LinkStats> links);

  // `links` of all transports, those first that lead to peers which were named.
  std::vector<PeerLink> Describe(std::span<const LinkStats> links) const;

 private:
  struct Way {
    Endpoint endpoint;
    std::optional<LinkProbe> probe;  // the latest; its setup that of the latest that connected
    double best_gigabytes_per_second = 0;
    LinkAlarm alarm;
    bool probe_wanted = false;
    TimePoint wanted_since{};
    TimePoint not_before{};
    int failed_probes = 0;                    // since the last that succeeded
    std::optional<uint64_t> probed_connects;  // at the last probe
    std::string failure;                      // as PeerLink's
    std::string probe_failure;                // likewise
  };
  // What is counted of a name, and outlives the peers that have it.
  struct Past {
    uint64_t left = 0;  // when the latest of them left, in the order of leaving
    uint64_t fallbacks = 0;
    std::string fallback_reason;
    std::map<std::string, uint64_t> alarms;  // by transport
  };
  struct Peer {
    uint64_t serial = 0;
    std::string name;  // empty: not named
    uint64_t epoch = 0;
    std::vector<Way> ways;  // in the order of the paths
    PeerPaths paths;
    int32_t open_streams = 0;
    uint64_t last_opened = 0;
    Past past;  // of peers of its name before it
  };
  using Peers = std::map<std::string, Peer, std::less<>>;  // by address

  Peer MakePeer(const std::vector<Endpoint>& endpoints) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Peer* Find(const std::string& peer, uint64_t serial) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropOldestUnnamed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Remember(const Peer& peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<PeerLink> SetUnreachable(const std::vector<KnownPeer>& peers)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static PeerLink Describe(const Peer& peer, const std::string& address, size_t way,
                           std::span<const LinkStats> links);
  static Past SumOf(const Peer& peer);
  static void NoteEnd(Way& way, const absl::Status& status);
  static bool IsToBeProbedLater(const Way& way);
  static Duration ProbePauseOf(const Way& way);
  static void NoteProbe(Way& way, const LinkProbe& probe);
  static void WantProbe(Way& way, TimePoint now);
  static bool IsSame(const Peer& peer, const KnownPeer& named);

  mutable absl::Mutex mutex_;
  Peers peers_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Past> past_ ABSL_GUARDED_BY(mutex_);  // by name, of those that are gone
  std::vector<PeerLink> unreachable_ ABSL_GUARDED_BY(mutex_);
  uint64_t left_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t next_serial_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t opened_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tandem
