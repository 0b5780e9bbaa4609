#include "server/open_fabric.h"

#include <string>
#include <vector>

#include "base/status.h"
#include "transfer/framed/framed_transport.h"
#include "transfer/shm/shm_medium.h"
#include "transfer/tcp/tcp_medium.h"

namespace tandem {
namespace {

FramedOptions Framing(const TransferTuning& tuning, TurnCounter& counter) {
  return {.connections = tuning.connections,
          .max_bytes_per_second = tuning.bandwidth,
          .turns = &counter.turns};
}

ZeroCopy ZeroCopyOf(const TransferTuning& tuning) {
  if (tuning.zero_copy == "on") return ZeroCopy::kOn;
  return tuning.zero_copy == "off" ? ZeroCopy::kOff : ZeroCopy::kAuto;
}

FabricPart ShmPart(const WorkerOptions& options, TurnCounter& turns) {
  ShmOptions shm;
  // Only those who are connected to need room; one place is the least that there can be.
  shm.buffer_bytes =
      options.role == Role::kDecode ? options.tuning.transfer.buffer_bytes : shm.slot_bytes;
  const FramedOptions framing = Framing(options.tuning.transfer, turns);
  return {.name = "shm",
          .open = [=](FrameReceiver* receiver) -> absl::StatusOr<std::unique_ptr<Transport>> {
            ASSIGN_OR_RETURN(std::unique_ptr<Medium> medium, ShmMedium::Open(shm));
            return NewFramedTransport(framing, std::move(medium), receiver);
          }};
}

FabricPart TcpPart(const WorkerOptions& options, TurnCounter& turns) {
  const TcpOptions tcp = {
      .listen_host = options.host,
      .listen_port = options.data_port,
      .advertised_host = options.advertised_host.empty() ? options.host : options.advertised_host,
      .zero_copy = ZeroCopyOf(options.tuning.transfer),
      .tls = options.tuning.transfer.tls};
  const FramedOptions framing = Framing(options.tuning.transfer, turns);
  return {.name = "tcp",
          .open = [=](FrameReceiver* receiver) -> absl::StatusOr<std::unique_ptr<Transport>> {
            ASSIGN_OR_RETURN(std::unique_ptr<Medium> medium, TcpMedium::Open(tcp));
            return NewFramedTransport(framing, std::move(medium), receiver);
          }};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Fabric>> OpenFabric(const WorkerOptions& options,
                                                   const EngineOptions& engine,
                                                   FrameReceiver* receiver, const Clock& clock,
                                                   std::deque<TurnCounter>& turns) {
  const TransferTuning& tuning = options.tuning.transfer;
  std::vector<FabricPart> parts;  // best first
  if (tuning.transport != "tcp") parts.push_back(ShmPart(options, turns.emplace_back("kv-shm")));
  if (tuning.transport != "shm") parts.push_back(TcpPart(options, turns.emplace_back("kv-tcp")));
  const bool probes = options.role == Role::kPrefill && tuning.probe == "on";
  const auto extent = static_cast<size_t>(engine.layout.ExtentBytes());
  return Fabric::Open({.epoch = engine.epoch, .probe_extent_bytes = probes ? extent : 0}, parts,
                      receiver, clock);
}

}  // namespace tandem
