#include "bench/transfer_paths.h"

#include "absl/synchronization/notification.h"
#include "base/check.h"
#include "transfer/fabric.h"
#include "transfer/framed/framed_transport.h"
#include "transfer/shm/shm_medium.h"
#include "transfer/tcp/tcp_medium.h"

namespace tandem {
namespace {

// The receiving sides. Several paths may lead to one.
enum Side : size_t { kTcp, kTls, kShm, kFabric };

constexpr uint64_t kEpoch = 1;

std::unique_ptr<Medium> Tcp(const TlsFiles& tls = {}) { return *TcpMedium::Open({.tls = tls}); }

std::unique_ptr<Medium> Shm(const PathOptions& options) {
  return *ShmMedium::Open({.slot_bytes = options.ring_bytes});
}

std::unique_ptr<Transport> Receiving(std::unique_ptr<Medium> medium, FrameReceiver& receiver) {
  return *NewFramedTransport({}, std::move(medium), &receiver);
}

std::unique_ptr<Transport> Sending(std::unique_ptr<Medium> medium, int32_t connections = 1) {
  return *NewFramedTransport({.connections = connections}, std::move(medium), nullptr);
}

// What a worker has: shared memory, else TCP. Peers are not probed.
std::unique_ptr<Transport> BothWays(const PathOptions& options, FrameReceiver* receiver) {
  static const SteadyClock clock;
  const std::vector<FabricPart> parts = {
      {"shm", [&](FrameReceiver* to, auto) { return NewFramedTransport({}, Shm(options), to); }},
      {"tcp", [&](FrameReceiver* to, auto) { return NewFramedTransport({}, Tcp(), to); }}};
  return *Fabric::Open({.epoch = kEpoch}, parts, receiver, clock);
}

}  // namespace

std::vector<std::unique_ptr<Transport>> OpenReceivers(const PathOptions& options,
                                                      FrameReceiver& receiver) {
  std::vector<std::unique_ptr<Transport>> sides;  // by Side
  sides.push_back(Receiving(Tcp(), receiver));
  sides.push_back(Receiving(Tcp(options.tls), receiver));
  sides.push_back(Receiving(Shm(options), receiver));
  sides.push_back(BothWays(options, &receiver));
  return sides;
}

std::vector<SendingPath> OpenSenders(const PathOptions& options,
                                     const std::vector<std::string>& addresses) {
  std::vector<SendingPath> paths;
  paths.emplace_back("tcp", Sending(Tcp()), addresses[kTcp]);
  paths.emplace_back("tcp, 2 connections", Sending(Tcp(), 2), addresses[kTcp]);
  paths.emplace_back("tcp, 4 connections", Sending(Tcp(), 4), addresses[kTcp]);
  paths.emplace_back("tcp, TLS", Sending(Tcp(options.tls)), addresses[kTls]);
  paths.emplace_back("shm", Sending(Shm(options)), addresses[kShm]);
  paths.emplace_back("shm, by the fabric", BothWays(options, nullptr), addresses[kFabric]);
  return paths;
}

void SendingPath::Send(const Load& load, std::span<const std::byte> source) {
  absl::Notification done;
  absl::Status result;
  const auto check = [&](const absl::Status& status) {
    TANDEM_CHECK(status.ok(), "a transport refused a stream");
  };
  const uint64_t stream = ++last_stream_;
  check(transport_->OpenStream(peer_, stream, kEpoch, Duration::zero(),
                               [&](uint64_t, uint64_t, const absl::Status& status) {
                                 result = status;
                                 done.Notify();
                               }));
  for (uint32_t i = 0; i < load.extents(); ++i) {
    check(transport_->Post(stream, kEpoch, i / load.blocks, i,
                           source.subspan(size_t{i} * load.extent_bytes, load.extent_bytes)));
  }
  check(transport_->FinishStream(stream, kEpoch));
  done.WaitForNotification();
  check(result);
}

}  // namespace tandem
