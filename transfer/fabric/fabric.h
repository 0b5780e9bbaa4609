#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/condition_variable.h"
#include "kernels/device.h"
#include "transfer/fabric/endpoints.h"
#include "transfer/fabric/link_prober.h"
#include "transfer/fabric/peer_table.h"
#include "transfer/fabric/probe_receiver.h"
#include "transfer/transport.h"

namespace tandem {

struct FabricOptions {
  uint64_t epoch = 0;             // this process's; probes of another epoch are refused
  size_t probe_extent_bytes = 0;  // the size of a KV extent; 0: this worker probes no peer
  // The device that holds KV; probes are sent from its memory and land in it. Null means the host's
  // memory. Outlives the fabric.
  Device* device = nullptr;
  bool share_probes = false;  // other processes must be able to open the memory of probes
};

// Describes one of the transports that a fabric combines.
struct FabricPart {
  std::string name;  // the transport, as endpoints name it
  // Opens the transport. It is given the receiver of incoming streams and the memory that probes
  // are sent from (empty when this worker does not probe); both outlive the transport.
  std::function<absl::StatusOr<std::unique_ptr<Transport>>(FrameReceiver*,
                                                           std::span<const std::byte> probes)>
      open;
};

// A worker that KV may be sent to.
struct FabricPeer {
  std::string name;
  uint64_t epoch = 0;
  std::string address;  // what Fabric::address() returns at that worker
};

// Combines several transports into one. Its address names an endpoint of each. Each stream takes
// one link to its peer, as LinkSelector chooses. A stream never moves to another link: when its
// link fails it ends UNAVAILABLE, and its sender opens it again. A peer is probed once SetPeers has
// named it, and again after a new connection to it (PeerTable). Thread-safe. One thread makes the
// probes and sleeps while there are none to make.
class Fabric final : public Transport {
 public:
  // `parts` is not empty and has the preferred transport first. `receiver` may be null on a worker
  // that only sends; it and `clock` outlive the fabric. Errors are those of the parts and of
  // AllocateProbeMemory.
  static absl::StatusOr<std::unique_ptr<Fabric>> Open(const FabricOptions& options,
                                                      const std::vector<FabricPart>& parts,
                                                      FrameReceiver* receiver, const Clock& clock);
  ~Fabric() override;

  // Sets the peers that the routers know. Other peers are forgotten, but streams to them continue.
  void SetPeers(const std::vector<FabricPeer>& peers);
  std::vector<PeerLink> peer_links() const;

  std::string address() const override;
  // OK when at least one endpoint of `peer` may be reached. UNAVAILABLE gives the reason for each
  // endpoint.
  absl::Status MayReach(std::string_view peer) const override;
  // Opens a stream over the link that LinkSelector chooses and returns the handle of that link's
  // transport. A stream that is open already is refused with INTERNAL only if both openings take
  // the same transport.
  absl::StatusOr<StreamHandle> OpenStream(std::string_view peer, uint64_t stream, uint64_t epoch,
                                          Duration renew_every, StreamEnded ended) override;

  std::vector<LinkStats> links() const override;
  TransportStats stats() const override;  // the sums over all its transports

 private:
  struct Part {
    std::string name;
    std::unique_ptr<Transport> transport;
  };

  Fabric(const FabricOptions& options, FrameReceiver* receiver, DeviceBuffer probe_memory,
         const Clock& clock);

  Transport* Find(std::string_view name) const;  // null when this worker lacks it
  Transport& TransportOf(const Endpoint& endpoint) const;
  // The endpoints of a peer, sorted by whether this worker may reach them.
  struct SortedEndpoints {
    std::vector<Endpoint> reachable;
    std::vector<UnreachableEndpoint> unreachable;  // those whose transport this worker has
    std::string reasons;  // why each endpoint outside `reachable` is not in it
  };
  absl::StatusOr<SortedEndpoints> Sort(std::string_view peer) const;
  absl::StatusOr<std::vector<Endpoint>> ReachableEndpoints(std::string_view peer) const;
  void OnEnded(const PeerTable::Use& use, const absl::Status& status);
  std::vector<LinkStats> AllLinks() const;

  void RunProbes();
  void Probe(const PeerTable::ProbeJob& job);

  const FabricOptions options_;
  const Clock& clock_;
  ProbeReceiver probe_receiver_;
  std::optional<LinkProber> prober_;  // empty on a worker that does not probe
  PeerTable peers_;
  mutable absl::Mutex mutex_;
  MonotonicCondVar probes_changed_;             // signals woken_ and stopping_
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;  // there may be a probe to make
  // Whether a probe waits for its time, or for streams to its peer to end.
  bool probe_waits_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // Constant after Open. Declared after the members that the transports' threads use, so that these
  // threads end first.
  std::vector<Part> parts_;
  std::thread probe_thread_;
};

}  // namespace tandem
