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
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "kernels/device.h"
#include "transfer/endpoints.h"
#include "transfer/link_prober.h"
#include "transfer/peer_table.h"
#include "transfer/probe_receiver.h"
#include "transfer/stream_key.h"
#include "transfer/transport.h"

namespace tandem {

struct FabricOptions {
  uint64_t epoch = 0;             // of this process: probes of another are refused
  size_t probe_extent_bytes = 0;  // of KV, for probes of the peers; 0: none is probed
  // Where KV lies, and so what probes are sent from and land in; null: in the host's memory.
  // Outlives the fabric.
  Device* device = nullptr;
  bool share_probes = false;  // probes are sent from memory that other processes can open
};

// One of the transports that a fabric is made of.
struct FabricPart {
  std::string name;  // of its endpoints
  // Given whom to call for what comes in, and what probes are sent from (empty: none are): both
  // outlive the transport.
  std::function<absl::StatusOr<std::unique_ptr<Transport>>(FrameReceiver*,
                                                           std::span<const std::byte> probes)>
      open;
};

// A worker that KV may be sent to.
struct FabricPeer {
  std::string name;
  uint64_t epoch = 0;
  std::string address;  // as Fabric::address() there
};

// Several transports as one. Its address names an endpoint of each; a stream takes, of those that
// lead to its peer, the one that a probe found fastest, and another one while that fails
// (PeerPaths). A stream that has begun does not change its way: it ends UNAVAILABLE, and whoever
// sends it opens it again. Peers are probed once SetPeers has named them, and again when a
// connection to them was made anew: one at a time, and while no stream is open toward them or after
// PeerTable::kProbePatience.
// Thread-safe. One thread of its own for the probes, asleep unless there is something to probe.
class Fabric final : public Transport {
 public:
  // `parts`: at least one, best by nature first. `receiver` may be null on a worker that only
  // sends; it and `clock` outlive the fabric. Errors as the parts', and as AllocateProbeMemory's.
  static absl::StatusOr<std::unique_ptr<Fabric>> Open(const FabricOptions& options,
                                                      const std::vector<FabricPart>& parts,
                                                      FrameReceiver* receiver, const Clock& clock);
  ~Fabric() override;

  // Those that the routers know now; the others are forgotten, streams toward them go on.
  void SetPeers(const std::vector<FabricPeer>& peers);
  std::vector<PeerLink> peer_links() const;

  std::string address() const override;
  // OK when an endpoint of `peer` may be reached; UNAVAILABLE says of each why not.
  absl::Status MayReach(std::string_view peer) const override;
  absl::Status OpenStream(std::string_view peer, uint64_t stream, uint64_t epoch,
                          Duration renew_every, StreamEnded ended) override;
  absl::Status Post(uint64_t stream, uint64_t epoch,
                    std::span<const PostedExtent> extents) override;
  absl::Status FinishStream(uint64_t stream, uint64_t epoch) override;
  void AbortStream(uint64_t stream, uint64_t epoch) override;

  std::vector<LinkStats> links() const override;
  RefusedFrames refused() const override;
  // What the parts set aside, and the memory for probes.
  size_t buffer_bytes() const override;
  // Without those of probes.
  uint64_t bytes_sent() const override;
  uint64_t bytes_received() const override;

 private:
  struct Part {
    std::string name;
    std::unique_ptr<Transport> transport;
  };
  // Of a stream that is open.
  struct Route {
    Transport* transport = nullptr;
    PeerTable::Use use;
  };
  struct StreamToOpen {
    StreamKey key;
    Duration renew_every{};
    StreamEnded ended;
  };

  Fabric(const FabricOptions& options, FrameReceiver* receiver, DeviceBuffer probe_memory,
         const Clock& clock);

  Transport* Find(std::string_view name) const;
  // What becomes of the endpoints of a peer for which this worker has a transport.
  struct Ways {
    std::vector<Endpoint> open;
    std::vector<UnreachableWay> unreachable;
    std::string why_none;  // of all endpoints, where none is open
  };
  absl::StatusOr<Ways> Sort(std::string_view peer) const;
  absl::StatusOr<std::vector<Endpoint>> WaysTo(std::string_view peer) const;
  absl::Status OpenOn(const PeerTable::Choice& choice, const StreamToOpen& stream);
  void OnEnded(StreamKey key, const absl::Status& status);
  Transport* RouteOf(StreamKey key) const;
  std::vector<LinkStats> AllLinks() const;

  void RunProbes();
  void Probe(const PeerTable::ProbeJob& job);
  void WakeProber();

  const FabricOptions options_;
  const Clock& clock_;
  ProbeReceiver probe_receiver_;
  std::optional<LinkProber> prober_;  // on a worker that probes
  PeerTable peers_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<StreamKey, Route> routes_ ABSL_GUARDED_BY(mutex_);
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;        // there may be something to probe
  bool probe_waits_ ABSL_GUARDED_BY(mutex_) = false;  // for the streams toward its peer to end
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Part> parts_;  // constant once open; their threads end before all of the above
  std::thread probe_thread_;
};

}  // namespace tandem
