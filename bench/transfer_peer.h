#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/transfer_ceilings.h"
#include "transfer/transport.h"

namespace tandem {

// CPU seconds that this process has used.
double CpuSeconds();

// Bytes of the pools of both sides.
struct PoolPart {
  uint64_t offset = 0;
  uint64_t bytes = 0;

  template <typename Byte>
  std::span<Byte> Of(std::span<Byte> pool) const {
    return pool.subspan(offset, bytes);
  }
};

// Puts block i at offset i * payload_bytes; acknowledges everything.
class PoolReceiver final : public FrameReceiver {
 public:
  explicit PoolReceiver(std::span<std::byte> pool) : pool_(pool) {}
  absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader& header) override;
  void Landed(const FrameHeader& header, const absl::Status& status) override;
  CommitAnswer Commit(const FrameHeader&) override { return {}; }
  absl::Status Renewed(uint64_t, uint64_t) override { return absl::OkStatus(); }

 private:
  const std::span<std::byte> pool_;
};

// A process that receives into a pool of its own, of the device, what this one sends: the bytes of
// `source`, which it inherits and compares with. Forks: to be made before any thread is, and before
// a device is opened.
class ReceiverProcess {
 public:
  // Called in the new process: the transports that receive.
  using OpenTransports =
      std::function<std::vector<std::unique_ptr<Transport>>(Device&, FrameReceiver&)>;

  // Both opened the device of that name.
  ReceiverProcess(const std::string& device, std::span<const std::byte> source, size_t ring_bytes,
                  const OpenTransports& open);
  ~ReceiverProcess();  // ends the process
  ReceiverProcess(const ReceiverProcess&) = delete;
  ReceiverProcess& operator=(const ReceiverProcess&) = delete;

  // The addresses of the transports, in their order.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // Shows it the memory that ReadMemory reads: the whole of what AllocateShared gave.
  void Show(Device& device, std::span<const std::byte> pool);

  // The bytes of `pool` at `part`, which are those of the source, to the same place by the plainest
  // ways; return when they have been read.
  void SendByRing(RelayEnd& end, std::span<const std::byte> pool, PoolPart part);
  void SendBySocket(std::span<const std::byte> pool, PoolPart part);
  // That part of what was shown, by one copy of the other's device.
  void ReadMemory(PoolPart part);

  double CpuSeconds();
  // Whether that part of its pool has the source's bytes. Clears it, so that the next check sees
  // new bytes only.
  bool HasAll(PoolPart part);

 private:
  enum class Order : uint32_t { kReadRing, kReadSocket, kOpenMemory, kReadMemory, kCpu, kCompare };
  struct Request {
    Order order;
    PoolPart part;
  };
  class Receiving;

  [[noreturn]] void Serve(const std::string& device, const OpenTransports& open);
  double Carry(const Request& request, Receiving& receiving);
  void Ask(const Request& request);
  double Answer();

  const std::span<const std::byte> source_;
  CopyRing ring_;
  BareSocket socket_;
  UniqueFd control_;
  pid_t process_ = -1;
  std::vector<std::string> addresses_;
};

}  // namespace tandem
