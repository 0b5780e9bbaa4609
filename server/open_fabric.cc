#include "server/open_fabric.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "base/status.h"
#include "transfer/framed/framed_transport.h"
#include "transfer/ipc/ipc_medium.h"
#include "transfer/shm/shm_medium.h"
#include "transfer/tcp/tcp_medium.h"

namespace tandem {
namespace {

// Where the KV lies that goes and comes.
struct KvMemory {
  Device& device;
  size_t extent_bytes = 0;
  std::span<const std::byte> shared;  // of which other processes may read; empty: none
};

bool Wants(const WorkerOptions& options, std::string_view transport) {
  const std::string& wanted = options.tuning.transfer.transport;
  if (wanted == "auto") return true;
  const std::vector<std::string> some = absl::StrSplit(wanted, ',');
  return std::ranges::find(some, transport) != some.end();
}

FramedOptions Framing(const TransferTuning& tuning, const KvMemory& kv, TurnCounter& counter) {
  return {.connections = tuning.connections,
          .max_bytes_per_second = tuning.bandwidth,
          .turns = &counter.turns,
          .device = &kv.device,
          .staged_payload_bytes = kv.extent_bytes};
}

ZeroCopy ZeroCopyOf(const TransferTuning& tuning) {
  if (tuning.zero_copy == "on") return ZeroCopy::kOn;
  return tuning.zero_copy == "off" ? ZeroCopy::kOff : ZeroCopy::kAuto;
}

// With what whoever starts a worker can do where the system has not the memory.
absl::Status NoSharedMemory(const absl::Status& why, Role role, size_t bytes) {
  const std::string do_this = role == Role::kDecode
                                  ? fmt::format("ask for less than --kv-buffer-bytes={}", bytes)
                                  : fmt::format(
                                        "{} bytes are the least, whatever --kv-buffer-bytes "
                                        "asks for at decode workers: make room",
                                        bytes);
  return Unavailable("shared memory for KV: {}: {}, or do without by --kv-transport=tcp",
                     std::string(why.message()), do_this);
}

// The peer copies, so nothing has to be set aside, and what may be under way costs no memory.
constexpr uint64_t kIpcWindowBytes = uint64_t{64} << 20;

FabricPart IpcPart(const WorkerOptions& options, const KvMemory& kv, TurnCounter& turns) {
  FramedOptions framing = Framing(options.tuning.transfer, kv, turns);
  framing.credit_window_bytes = kIpcWindowBytes;
  return {
      .name = "ipc",
      .open = [=](FrameReceiver* receiver,
                  std::span<const std::byte> probes) -> absl::StatusOr<std::unique_ptr<Transport>> {
        IpcOptions ipc = {.device = &kv.device};
        for (const std::span<const std::byte> memory : {kv.shared, probes}) {
          if (!memory.empty()) ipc.shared.push_back(memory);
        }
        ASSIGN_OR_RETURN(std::unique_ptr<Medium> medium, IpcMedium::Open(ipc));
        return NewFramedTransport(framing, std::move(medium), receiver);
      }};
}

FabricPart ShmPart(const WorkerOptions& options, const KvMemory& kv, TurnCounter& turns) {
  ShmOptions shm;
  // Only those who are connected to need room; one place is the least that there can be.
  shm.buffer_bytes =
      options.role == Role::kDecode ? options.tuning.transfer.buffer_bytes : shm.slot_bytes;
  const FramedOptions framing = Framing(options.tuning.transfer, kv, turns);
  const Role role = options.role;
  return {.name = "shm",
          .open = [=](FrameReceiver* receiver, auto) -> absl::StatusOr<std::unique_ptr<Transport>> {
            absl::StatusOr<std::unique_ptr<Medium>> medium = ShmMedium::Open(shm);
            if (absl::IsUnavailable(medium.status())) {
              return NoSharedMemory(medium.status(), role, shm.buffer_bytes);
            }
            RETURN_IF_ERROR(medium.status());
            return NewFramedTransport(framing, *std::move(medium), receiver);
          }};
}

FabricPart TcpPart(const WorkerOptions& options, const KvMemory& kv, TurnCounter& turns) {
  const TcpOptions tcp = {
      .listen_host = options.host,
      .listen_port = options.data_port,
      .advertised_host = options.advertised_host.empty() ? options.host : options.advertised_host,
      .zero_copy = ZeroCopyOf(options.tuning.transfer),
      .tls = options.tuning.transfer.tls};
  const FramedOptions framing = Framing(options.tuning.transfer, kv, turns);
  return {.name = "tcp",
          .open = [=](FrameReceiver* receiver, auto) -> absl::StatusOr<std::unique_ptr<Transport>> {
            ASSIGN_OR_RETURN(std::unique_ptr<Medium> medium, TcpMedium::Open(tcp));
            return NewFramedTransport(framing, std::move(medium), receiver);
          }};
}

}  // namespace

absl::StatusOr<bool> SharesKv(const WorkerOptions& options, const Device& device) {
  const bool named = Wants(options, "ipc") && options.tuning.transfer.transport != "auto";
  if (named && options.role != Role::kUnified && !device.can_share()) {
    return FailedPrecondition(
        "--kv-transport=ipc: processes cannot open memory of {} of one another here: use another "
        "transport, or auto",
        device.name());
  }
  return options.role == Role::kPrefill && Wants(options, "ipc") && device.can_share();
}

absl::StatusOr<std::unique_ptr<Fabric>> OpenFabric(const WorkerOptions& options, Engine& engine,
                                                   Device& device, const Clock& clock,
                                                   std::deque<TurnCounter>& turns) {
  const EngineOptions& made = engine.options();
  const KvMemory kv = {.device = device,
                       .extent_bytes = static_cast<size_t>(made.layout.ExtentBytes()),
                       .shared = made.share_kv ? engine.kv_memory() : std::span<const std::byte>()};
  std::vector<FabricPart> parts;  // best first
  if (Wants(options, "ipc") && device.can_share()) {
    parts.push_back(IpcPart(options, kv, turns.emplace_back("kv-ipc")));
  }
  if (Wants(options, "shm")) parts.push_back(ShmPart(options, kv, turns.emplace_back("kv-shm")));
  if (Wants(options, "tcp")) parts.push_back(TcpPart(options, kv, turns.emplace_back("kv-tcp")));
  const bool probes = options.role == Role::kPrefill && options.tuning.transfer.probe == "on";
  return Fabric::Open(
      {.epoch = made.epoch, .probe_extent_bytes = probes ? kv.extent_bytes : 0, .device = &device},
      parts, engine.frame_receiver(), clock);
}

}  // namespace tandem
