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
#include "transfer/fabric/endpoints.h"
#include "transfer/fabric/link_prober.h"
#include "transfer/fabric/link_selector.h"
#include "transfer/transport.h"

namespace tandem {

// An endpoint that this worker never tries, such as another host's shared memory.
struct UnreachableEndpoint {
  Endpoint endpoint;
  std::string reason;
};

// A worker that KV may be sent to.
struct KnownPeer {
  std::string name;
  uint64_t epoch = 0;
  std::string address;              // all of its endpoints as text; the table's key
  std::vector<Endpoint> endpoints;  // those that this worker may reach, one link each
  std::vector<UnreachableEndpoint> unreachable;
};

// One link to one peer, as status pages show it.
struct PeerLink {
  std::string peer;     // the peer's name, or its address while no router has named it
  std::string address;  // the peer's address: all of its endpoints as text
  LinkStats stats;      // with the figures of the latest probe
  bool in_use = false;  // the latest stream to this peer took this link
  // How often streams to this peer left a better link for another, since the peer started.
  uint64_t fallbacks = 0;
  std::string fallback_reason;  // why the latest fallback happened
  // Why the latest stream or probe failed because of this link; empty after a success.
  std::string failure;
  std::string probe_failure;  // why the latest probe measured nothing; empty after a success
  std::string unreachable;    // as UnreachableEndpoint::reason; such a link has no other figures
};

// The peers of a fabric and the links to them: which link the next stream takes, what probes have
// measured, and which link to probe next. Peers that SetPeers does not name are kept while they are
// among the latest kMaxUnnamed. Does no I/O. Thread-safe.
class PeerTable {
 public:
  static constexpr size_t kMaxUnnamed = 256;
  static constexpr size_t kMaxNamed = 4096;
  // How long a probe waits for a moment in which no stream to its peer is open.
  static constexpr Duration kProbePatience = std::chrono::seconds(10);
  // The least time between two probes of one link, also after a failure.
  static constexpr Duration kProbePause = std::chrono::seconds(10);
  // The pause before a probe is tried again at a peer that was busy with another worker's probe.
  static constexpr Duration kBusyPause = std::chrono::seconds(1);
  // The number of failed probes in a row after which a link waits for kLaterProbePause or longer
  // before it is probed again.
  static constexpr int kProbeTries = 3;
  // The pause before a new probe of a link that is slow, has damaged a stream or cannot be probed.
  // It doubles from failure to failure up to the longest, because each failed attempt may cost the
  // peer something that it never gets back (NcclContext::kMaxUnusedIds).
  static constexpr Duration kLaterProbePause = std::chrono::seconds(30);
  static constexpr Duration kLongestProbePause = std::chrono::minutes(8);
  // A link is slow when even its fastest recent rate is below this share of its best probe.
  // Transport threads that compete with a prefill for cores still move half of what a probe
  // measures.
  static constexpr double kSlowShare = 0.25;

  // Sets which named peers exist. Named peers that are missing from `peers` are forgotten. A peer
  // with another epoch or other endpoints begins anew, with counts of zero. New peers are to be
  // probed. Returns the unreachable links that were not in the previous call.
  std::vector<PeerLink> SetPeers(const std::vector<KnownPeer>& peers, TimePoint now);

  // The use of a link by an open stream, which Choose returns and Ended takes, or by a probe.
  struct Use {
    std::string peer;
    uint64_t serial = 0;  // tells this entry of the peer from later ones
    LinkSelector::Use link;
  };
  struct Choice {
    Endpoint endpoint;
    Use use;
    std::string peer;  // its name, or its address while it has no name
    std::optional<LinkSelector::Fallback> fallback;
  };
  // Chooses the link of a new stream to `peer`; the stream counts as open until Ended. A peer that
  // the table does not know is added with `endpoints`, which must not be empty.
  Choice Choose(std::string_view peer, const std::vector<Endpoint>& endpoints, TimePoint now);
  // Records how a stream ended. After UNAVAILABLE or DATA_LOSS the next stream takes another link
  // if there is one. Other errors say nothing about the link.
  void Ended(const Use& use, const absl::Status& status, TimePoint now);

  struct ProbeJob {
    Use use;
    std::string name;  // the peer's name
    uint64_t epoch = 0;
    Endpoint endpoint;
    bool later = false;  // several probes in a row have failed before this one
  };
  // `job` is the probe to make now. Without one, `ask_again` says when to call NextProbe again;
  // kNoDeadline means that no probe waits.
  struct Next {
    std::optional<ProbeJob> job;
    TimePoint ask_again = kNoDeadline;
  };
  Next NextProbe(TimePoint now);
  // Records the result of a probe; `link` has the link's counters after it. A failed probe counts
  // as a failed stream, except when it was CANCELLED or when the peer was busy with another probe
  // (RESOURCE_EXHAUSTED), neither of which says anything about the link.
  void Probed(const ProbeJob& job, const absl::StatusOr<LinkProbe>& probe, const LinkStats& link,
              TimePoint now);
  // Asks for a probe of each link that has connected anew since its latest probe, and of each link
  // that is slow or could not be probed, when its pause is over.
  void LookForReprobes(std::span<const LinkStats> links, TimePoint now);

  // All links that are known, in the order of the peers' addresses; the unreachable ones come last.
  // `links` has the counters of all transports.
  std::vector<PeerLink> Describe(std::span<const LinkStats> links) const;

 private:
  struct Link {
    Endpoint endpoint;
    std::optional<LinkProbe> probe;  // the latest; `setup` is of the latest that had to connect
    double best_gigabytes_per_second = 0;
    bool probe_wanted = false;
    TimePoint wanted_since{};
    TimePoint not_before{};
    int failed_probes = 0;                    // since the latest success
    std::optional<uint64_t> probed_connects;  // LinkStats::connects at the latest probe
    std::string failure;                      // as PeerLink::failure
    std::string probe_failure;                // as PeerLink::probe_failure

    void NoteEnd(const absl::Status& status);  // records how a stream or probe ended
    void NoteProbe(const LinkProbe& result);
    bool IsSlow(const LinkStats* stats) const;
    void WantProbe(TimePoint now);
  };
  struct Peer {
    uint64_t serial = 0;
    std::string name;  // empty while no router has named it
    uint64_t epoch = 0;
    std::vector<Link> links;  // in the same order as in `selector`
    LinkSelector selector;
    int32_t open_streams = 0;
    uint64_t last_opened = 0;
  };
  using Peers = std::map<std::string, Peer, std::less<>>;  // by address

  Peer MakePeer(const std::vector<Endpoint>& endpoints) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The peer whose link is used; null when it was forgotten meanwhile.
  Peer* Find(const Use& use) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropOldestUnnamed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<PeerLink> SetUnreachable(const std::vector<KnownPeer>& peers)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static PeerLink Describe(const Peer& peer, const std::string& address, size_t index,
                           std::span<const LinkStats> links);

  mutable absl::Mutex mutex_;
  Peers peers_ ABSL_GUARDED_BY(mutex_);
  std::vector<PeerLink> unreachable_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_serial_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t opened_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tandem
