#include "server/assembly/open_fabric.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "base/log.h"
#include "base/status.h"
#include "kvstore/kv_convert.h"
#include "kvstore/kv_parts.h"
#include "transfer/framed/framed_transport.h"
#include "transfer/media/ipc/ipc_medium.h"
#include "transfer/media/nccl/nccl_medium.h"
#include "transfer/media/shm/shm_medium.h"
#include "transfer/media/tcp/tcp_medium.h"

namespace tandem {
namespace {

// The memory that KV is sent from and received into.
struct KvMemory {
  Device& device;
  size_t extent_bytes = 0;            // bytes of an extent of this worker
  size_t sent_payload_bytes = 0;      // of the largest payload that is sent
  size_t largest_payload_bytes = 0;   // sent or received: peers may have larger extents
  int64_t most_frames = 0;            // frames of one hand-off, at most
  std::span<const std::byte> shared;  // memory that other processes may read; empty: none
};

enum class Wish : uint8_t { kNot, kIfThereIs, kNamed };

Wish WishFor(const WorkerOptions& options, std::string_view transport) {
  const std::string& wanted = options.tuning.transfer.transport;
  if (wanted == "auto") return Wish::kIfThereIs;
  const std::vector<std::string> some = absl::StrSplit(wanted, ',');
  return std::ranges::find(some, transport) == some.end() ? Wish::kNot : Wish::kNamed;
}

bool Wants(const WorkerOptions& options, std::string_view transport) {
  return WishFor(options, transport) != Wish::kNot;
}

size_t LargestExtentBytes(const EngineOptions& made) {
  const KvLayout& layout = made.layout;
  return static_cast<size_t>(made.role == Role::kDecode ? LargestExtentBytesTo(layout)
                                                        : layout.ExtentBytes());
}

// A payload is an extent, or the tables of codecs.
size_t LargestPayloadBytes(const EngineOptions& made) {
  return std::max(LargestExtentBytes(made), static_cast<size_t>(MostTablesBytes(made.layout)));
}
size_t SentPayloadBytes(const KvLayout& layout) {
  return static_cast<size_t>(std::max(layout.ExtentBytes(), MostTablesBytes(layout)));
}

// The shared memory of one connection: it has room for several extents, and for two of the largest
// payloads.
size_t ShmAreaBytesFor(const Device& device, size_t extent_bytes, size_t sent_payload_bytes) {
  return std::max(ShmAreaBytes(device, extent_bytes), std::bit_ceil(2 * sent_payload_bytes));
}

constexpr size_t kLeastStagedExtents = 8;

FramedOptions Framing(const TransferTuning& tuning, const KvMemory& kv, TurnCounter& counter) {
  return {.max_queued_frames = kv.most_frames,
          .max_bytes_per_second = tuning.bandwidth,
          .rate_burst = tuning.bandwidth_burst,
          .turns = &counter.turns,
          .device = &kv.device,
          .staged_payload_bytes = kv.largest_payload_bytes,
          .staging_bytes = std::max(FramedOptions().staging_bytes,
                                    kLeastStagedExtents * kv.largest_payload_bytes)};
}

absl::Status CannotShare(const Device& device) {
  return FailedPrecondition("processes cannot open memory of {} of one another here",
                            device.name());
}

bool Probes(const WorkerOptions& options) {
  return options.role == Role::kPrefill && options.tuning.transfer.probe == "on";
}

// The error for a system that lacks the shared memory, with the flags by which the operator can do
// without it.
absl::Status NoSharedMemory(const absl::Status& why, size_t bytes) {
  return Unavailable(
      "shared memory for KV: {}: ask for less than --kv-buffer-bytes={}, or do without by "
      "--kv-transport=tcp",
      std::string(why.message()), bytes);
}

FabricPart IpcPart(const WorkerOptions& options, const KvMemory& kv, TurnCounter& turns) {
  FramedOptions framing = Framing(options.tuning.transfer, kv, turns);
  framing.credit_window_bytes = kSideChannelWindowBytes;
  return {
      .name = "ipc",
      .open = [=](FrameReceiver* receiver,
                  std::span<const std::byte> probes) -> absl::StatusOr<std::unique_ptr<Transport>> {
        IpcOptions ipc = {.device = &kv.device};
        for (const std::span<const std::byte> memory : {kv.shared, probes}) {
          if (!memory.empty()) ipc.shared.push_back(memory);
        }
        ASSIGN_OR_RETURN(std::unique_ptr<Medium> medium, OpenIpcMedium(ipc));
        return NewFramedTransport(framing, std::move(medium), receiver);
      }};
}

// NCCL takes long to set up a communicator, so its connections get more time than others.
constexpr std::chrono::milliseconds kNcclConnectTimeout{12'000};

NcclOptions NcclOptionsFor(const WorkerOptions& options, size_t largest_payload_bytes) {
  NcclOptions nccl;
  nccl.listen_host = options.host;
  nccl.listen_port = options.data_port == 0 ? 0 : static_cast<uint16_t>(options.data_port + 1);
  nccl.advertised_host = options.advertised_host;
  nccl.chunk_bytes = std::max(nccl.chunk_bytes, largest_payload_bytes);
  (options.role == Role::kPrefill ? nccl.receive_slots : nccl.send_slots) = 0;
  return nccl;
}

// Whether the flags allow nccl; whether the device and the library support it is found out when it
// is opened.
absl::Status CheckNccl(const WorkerOptions& options) {
  if (options.tuning.transfer.tls.enabled()) {
    return FailedPrecondition(
        "KV over nccl is not encrypted, and the --tls or --kv-tls options ask for it");
  }
  if (options.data_port == UINT16_MAX) {
    return InvalidArgument("--data-port {}: nccl takes the port after it", options.data_port);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Medium>> OpenNccl(const WorkerOptions& options, const KvMemory& kv) {
  RETURN_IF_ERROR(CheckNccl(options));
  return OpenNcclMedium(kv.device, NcclOptionsFor(options, kv.largest_payload_bytes));
}

// Adds nccl to `parts` where the flags ask for it or the device suits it, and it can be opened.
// When only --kv-transport=auto asks for it, a failure goes to `left_out`; otherwise it is an
// error.
absl::Status AddNcclPart(const WorkerOptions& options, const KvMemory& kv,
                         std::deque<TurnCounter>& turns, std::vector<FabricPart>& parts,
                         std::vector<LeftOut>& left_out) {
  const Wish wish = WishFor(options, "nccl");
  if (wish == Wish::kNot || (wish == Wish::kIfThereIs && kv.device.is_host())) {
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<Medium>> opened = OpenNccl(options, kv);
  if (!opened.ok() && wish == Wish::kIfThereIs) {
    LeaveOut("nccl", opened.status(), left_out);
    return absl::OkStatus();
  }
  if (!opened.ok()) return Annotate(opened.status(), "--kv-transport=nccl");
  FramedOptions framing = Framing(options.tuning.transfer, kv, turns.emplace_back("kv-nccl"));
  framing.credit_window_bytes = kSideChannelWindowBytes;
  framing.connect_timeout = kNcclConnectTimeout;
  const auto medium = std::make_shared<std::unique_ptr<Medium>>(*std::move(opened));
  parts.push_back({.name = "nccl", .open = [=](FrameReceiver* receiver, auto) {
                     return NewFramedTransport(framing, std::move(*medium), receiver);
                   }});
  return absl::OkStatus();
}

// Checks that the shared memory of a prefill worker has room for the area of one connection.
absl::Status CheckShmBuffer(const WorkerOptions& options, const Device& device, size_t area_bytes) {
  const auto buffer_bytes = static_cast<size_t>(FabricSharedBytes(options));
  if (options.role != Role::kPrefill || buffer_bytes >= area_bytes) return absl::OkStatus();
  return InvalidArgument(
      "--kv-buffer-bytes={}: a connection takes {} bytes of KV of this model on {}: give at "
      "least that, or do without shared memory by --kv-transport=tcp",
      buffer_bytes, area_bytes, device.name());
}

absl::StatusOr<ShmOptions> ShmOptionsFor(const WorkerOptions& options, const KvMemory& kv) {
  const ShmOptions shm = {
      .device = &kv.device,
      .buffer_bytes = static_cast<size_t>(FabricSharedBytes(options)),
      .area_bytes = ShmAreaBytesFor(kv.device, kv.extent_bytes, kv.sent_payload_bytes),
      .max_payload_bytes = kv.sent_payload_bytes};
  RETURN_IF_ERROR(CheckShmBuffer(options, kv.device, shm.area_bytes));
  return shm;
}

absl::StatusOr<FabricPart> ShmPart(const WorkerOptions& options, const KvMemory& kv,
                                   TurnCounter& turns) {
  ASSIGN_OR_RETURN(const ShmOptions shm, ShmOptionsFor(options, kv));
  FramedOptions framing = Framing(options.tuning.transfer, kv, turns);
  // A credit window above the sender's area has no use, and one below it needs credits more often.
  framing.credit_window_bytes = shm.area_bytes;
  return FabricPart{
      .name = "shm",
      .open = [=](FrameReceiver* receiver, auto) -> absl::StatusOr<std::unique_ptr<Transport>> {
        absl::StatusOr<std::unique_ptr<Medium>> medium = OpenShmMedium(shm);
        // There is no shared memory, not enough of it, or it cannot be page-locked.
        if (absl::IsUnavailable(medium.status()) || absl::IsResourceExhausted(medium.status())) {
          return NoSharedMemory(medium.status(), shm.buffer_bytes);
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
      .tls = options.tuning.transfer.tls,
      .tls_refusals = options.tuning.transfer.tls_refusals.get()};
  const FramedOptions framing = Framing(options.tuning.transfer, kv, turns);
  return {.name = "tcp",
          .open = [=](FrameReceiver* receiver, auto) -> absl::StatusOr<std::unique_ptr<Transport>> {
            ASSIGN_OR_RETURN(std::unique_ptr<Medium> medium, OpenTcpMedium(tcp));
            return NewFramedTransport(framing, std::move(medium), receiver);
          }};
}

}  // namespace

void LeaveOut(const std::string& transport, const absl::Status& why, std::vector<LeftOut>& all) {
  all.push_back({.transport = transport, .reason = why.ToString()});
  LogWarn("transport={} left out reason=\"{}\"", transport, all.back().reason);
}

absl::Status MayOffer(std::string_view transport, const WorkerOptions& options,
                      const EngineOptions& engine, const Device& device) {
  const Wish wish = WishFor(options, transport);
  if (wish == Wish::kNot) {
    return NotFound("--kv-transport={} leaves it out", options.tuning.transfer.transport);
  }
  if (transport == "ipc") {
    if (!device.can_share()) return CannotShare(device);
    if (options.role == Role::kPrefill && !engine.share_kv) {
      return FailedPrecondition("the KV pool of this worker is not shared");
    }
  }
  if (transport == "nccl") {
    if (wish == Wish::kIfThereIs && device.is_host()) {
      return FailedPrecondition("KV lies in the memory of the host, and nccl moves that of GPUs");
    }
    RETURN_IF_ERROR(CheckNccl(options));
  }
  if (transport == "shm") {
    const auto extent_bytes = static_cast<size_t>(engine.layout.ExtentBytes());
    const size_t area = ShmAreaBytesFor(device, extent_bytes, SentPayloadBytes(engine.layout));
    RETURN_IF_ERROR(CheckShmBuffer(options, device, area));
  }
  return absl::OkStatus();
}

int64_t MostFramesOf(const EngineOptions& engine) {
  const KvLayout& layout = engine.layout;
  const int64_t blocks = layout.BlocksFor(engine.max_context_tokens);
  return std::max(FramedOptions().max_queued_frames, layout.num_layers * blocks);
}

bool MayKeepKvPrivate(const WorkerOptions& options) {
  return WishFor(options, "ipc") != Wish::kNamed;
}

absl::StatusOr<bool> SharesKv(const WorkerOptions& options, const Device& device) {
  if (WishFor(options, "ipc") == Wish::kNamed && options.role != Role::kUnified &&
      !device.can_share()) {
    return FailedPrecondition("--kv-transport=ipc: {}: use another transport, or auto",
                              std::string(CannotShare(device).message()));
  }
  return options.role == Role::kPrefill && Wants(options, "ipc") && device.can_share();
}

int64_t FabricDeviceBytes(const WorkerOptions& options, const EngineOptions& engine,
                          const Device& device) {
  if (options.role == Role::kUnified || device.is_host()) return 0;
  size_t bytes = ProbeReceiver::kMemoryBytes;
  if (Probes(options)) bytes += LinkProber::kMemoryBytes;
  if (Wants(options, "nccl")) {
    bytes += NcclDeviceBytes(NcclOptionsFor(options, LargestPayloadBytes(engine)));
  }
  return static_cast<int64_t>(bytes);
}

int64_t FabricSharedBytes(const WorkerOptions& options) {
  if (options.role != Role::kPrefill || !Wants(options, "shm")) return 0;
  return static_cast<int64_t>(options.tuning.transfer.buffer_bytes);
}

absl::StatusOr<std::unique_ptr<Fabric>> OpenFabric(const WorkerOptions& options, Engine& engine,
                                                   Device& device, const Clock& clock,
                                                   std::deque<TurnCounter>& turns,
                                                   std::vector<LeftOut>& left_out) {
  const EngineOptions& made = engine.options();
  const KvMemory kv = {.device = device,
                       .extent_bytes = static_cast<size_t>(made.layout.ExtentBytes()),
                       .sent_payload_bytes = SentPayloadBytes(made.layout),
                       .largest_payload_bytes = LargestPayloadBytes(made),
                       .most_frames = MostFramesOf(made),
                       .shared = made.share_kv ? engine.kv_memory() : std::span<const std::byte>()};
  std::vector<FabricPart> parts;  // the preferred transport first
  if (Wants(options, "ipc") && !device.can_share()) {
    LeaveOut("ipc", CannotShare(device), left_out);
  } else if (MayOffer("ipc", options, made, device).ok()) {
    parts.push_back(IpcPart(options, kv, turns.emplace_back("kv-ipc")));
  }
  RETURN_IF_ERROR(AddNcclPart(options, kv, turns, parts, left_out));
  if (Wants(options, "shm")) {
    ASSIGN_OR_RETURN(FabricPart part, ShmPart(options, kv, turns.emplace_back("kv-shm")));
    parts.push_back(std::move(part));
  }
  if (Wants(options, "tcp")) parts.push_back(TcpPart(options, kv, turns.emplace_back("kv-tcp")));
  return Fabric::Open({.epoch = made.epoch,
                       .probe_extent_bytes = Probes(options) ? kv.extent_bytes : 0,
                       .device = &device,
                       .share_probes = made.share_kv},
                      parts, engine.frame_receiver(), clock);
}

}  // namespace tandem
