#include "bench/transfer_paths.h"

#include "absl/synchronization/notification.h"
#include "base/check.h"
#include "transfer/framed/framed_transport.h"
#include "transfer/shm/shm_medium.h"
#include "transfer/tcp/tcp_medium.h"

namespace tandem {
namespace {

// The receiving sides. Several paths may lead to one.
enum Side : size_t { kTcp, kTls, kShm };

std::unique_ptr<Transport> Framed(std::unique_ptr<Medium> medium, FrameReceiver* receiver) {
  return *NewFramedTransport({}, std::move(medium), receiver);
}

std::unique_ptr<Medium> Tcp() { return *TcpMedium::Open({}); }

std::unique_ptr<Medium> Tls(const TlsFiles& files) { return *TcpMedium::Open({.tls = files}); }

std::unique_ptr<Medium> Shm(size_t ring_bytes) {
  return *ShmMedium::Open({.slot_bytes = ring_bytes});
}

}  // namespace

std::vector<std::unique_ptr<Transport>> OpenReceivers(const PathOptions& options,
                                                      FrameReceiver& receiver) {
  std::vector<std::unique_ptr<Transport>> sides;
  sides.push_back(Framed(Tcp(), &receiver));
  sides.push_back(Framed(Tls(options.tls), &receiver));
  sides.push_back(Framed(Shm(options.ring_bytes), &receiver));
  return sides;
}

std::vector<SendingPath> OpenSenders(const PathOptions& options,
                                     const std::vector<std::string>& addresses) {
  std::vector<SendingPath> paths;
  paths.emplace_back("tcp", Framed(Tcp(), nullptr), addresses[kTcp]);
  paths.emplace_back("tcp, TLS", Framed(Tls(options.tls), nullptr), addresses[kTls]);
  paths.emplace_back("shm", Framed(Shm(options.ring_bytes), nullptr), addresses[kShm]);
  return paths;
}

void SendingPath::Send(const Load& load, std::span<const std::byte> source) {
  absl::Notification done;
  absl::Status result;
  const auto check = [&](const absl::Status& status) {
    TANDEM_CHECK(status.ok(), "a transport refused a stream");
  };
  const uint64_t stream = ++last_stream_;
  check(transport_->OpenStream(peer_, stream, 1, Duration::zero(),
                               [&](uint64_t, uint64_t, const absl::Status& status) {
                                 result = status;
                                 done.Notify();
                               }));
  for (uint32_t i = 0; i < load.extents(); ++i) {
    check(transport_->Post(stream, 1, i / load.blocks, i,
                           source.subspan(size_t{i} * load.extent_bytes, load.extent_bytes)));
  }
  check(transport_->FinishStream(stream, 1));
  done.WaitForNotification();
  check(result);
}

}  // namespace tandem
