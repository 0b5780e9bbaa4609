#include "bench/transfer_paths.h"

#include "absl/synchronization/notification.h"
#include "base/check.h"
#include "transfer/fabric/fabric.h"
#include "transfer/framed/framed_transport.h"
#include "transfer/media/ipc/ipc_medium.h"
#include "transfer/media/shm/shm_medium.h"
#include "transfer/media/tcp/tcp_medium.h"

namespace tandem {
namespace {

// The receiving sides. Several paths may lead to one. Those of any device come first.
enum Side : size_t { kShm, kIpc, kTcp, kTls, kFabric };

constexpr uint64_t kEpoch = 1;

std::unique_ptr<Medium> Tcp(const TlsFiles& tls = {}) { return *OpenTcpMedium({.tls = tls}); }

std::unique_ptr<Medium> Shm(const PathOptions& options, Device& device) {
  return *OpenShmMedium({.device = &device,
                         .area_bytes = ShmAreaBytes(device, options.extent_bytes),
                         .max_payload_bytes = options.extent_bytes});
}

// One end of each way: with a receiver the receiving one.
class Ends {
 public:
  Ends(const PathOptions& options, Device& device, FrameReceiver* receiver)
      : options_(options), device_(device), receiver_(receiver) {}

  std::unique_ptr<Transport> Over(std::unique_ptr<Medium> medium) const {
    return Over(std::move(medium), receiver_);
  }
  std::unique_ptr<Transport> OverIpc(std::vector<std::span<const std::byte>> shared) const {
    return Over(*OpenIpcMedium({.device = &device_, .shared = std::move(shared)}));
  }
  // What a worker has: shared memory, else TCP. Peers are not probed.
  std::unique_ptr<Transport> BothWays() const {
    static const SteadyClock clock;
    const std::vector<FabricPart> parts = {
        {"shm", [&](FrameReceiver* to, auto) { return Over(Shm(options_, device_), to); }},
        {"tcp", [&](FrameReceiver* to, auto) { return Over(Tcp(), to); }}};
    return *Fabric::Open({.epoch = kEpoch}, parts, receiver_, clock);
  }

 private:
  std::unique_ptr<Transport> Over(std::unique_ptr<Medium> medium, FrameReceiver* receiver) const {
    FramedOptions framing = {.device = &device_, .staged_payload_bytes = options_.extent_bytes};
    if (medium->name() == "shm") {  // as a worker does
      framing.credit_window_bytes = ShmAreaBytes(device_, options_.extent_bytes);
    }
    return *NewFramedTransport(framing, std::move(medium), receiver);
  }

  const PathOptions& options_;
  Device& device_;
  FrameReceiver* const receiver_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> OpenReceivers(const PathOptions& options, Device& device,
                                                      FrameReceiver& receiver) {
  const Ends ends(options, device, &receiver);
  std::vector<std::unique_ptr<Transport>> sides;  // by Side
  sides.push_back(ends.Over(Shm(options, device)));
  sides.push_back(ends.OverIpc({}));
  if (!device.is_host()) return sides;
  sides.push_back(ends.Over(Tcp()));
  sides.push_back(ends.Over(Tcp(options.tls)));
  sides.push_back(ends.BothWays());
  return sides;
}

std::vector<SendingPath> OpenSenders(const PathOptions& options, Device& device,
                                     std::span<const std::byte> pool,
                                     const std::vector<std::string>& addresses) {
  const Ends ends(options, device, nullptr);
  std::vector<SendingPath> paths;
  paths.emplace_back("ipc", ends.OverIpc({pool}), addresses[kIpc]);
  paths.emplace_back("shm", ends.Over(Shm(options, device)), addresses[kShm]);
  if (!device.is_host()) return paths;
  paths.emplace_back("shm, by the fabric", ends.BothWays(), addresses[kFabric]);
  paths.emplace_back("tcp", ends.Over(Tcp()), addresses[kTcp]);
  paths.emplace_back("tcp, TLS", ends.Over(Tcp(options.tls)), addresses[kTls]);
  return paths;
}

void SendingPath::Send(const Load& load, std::span<const std::byte> pool) {
  absl::Notification done;
  absl::Status result;
  const auto check = [&](const absl::Status& status) {
    TANDEM_CHECK(status.ok(), "a transport refused a stream");
  };
  const uint64_t stream = ++last_stream_;
  const absl::StatusOr<StreamHandle> handle = transport_->OpenStream(
      peer_, stream, kEpoch, Duration::zero(), [&](uint64_t, uint64_t, const absl::Status& status) {
        result = status;
        done.Notify();
      });
  check(handle.status());
  std::vector<PostedExtent> extents(load.blocks);
  for (uint32_t layer = 0; layer < load.layers; ++layer) {
    for (uint32_t i = 0; i < load.blocks; ++i) {
      const uint32_t block = load.first + layer * load.blocks + i;
      extents[i] = {.layer = layer,
                    .block = block,
                    .payload = pool.subspan(size_t{block} * load.extent_bytes, load.extent_bytes)};
    }
    check((*handle)->Post(extents));
  }
  check((*handle)->Finish());
  done.WaitForNotification();
  check(result);
}

}  // namespace tandem
