#include "bench/transfer_peer.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "kernels/registry.h"
#include "transfer/media/ipc/segments.h"
#include "transfer/media/unix_socket.h"

namespace tandem {
namespace {

// Whole messages over the control socket; false at its end.
bool SendAll(const UniqueFd& socket, const void* data, size_t bytes) {
  return send(socket.get(), data, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes);
}
bool ReceiveAll(const UniqueFd& socket, void* data, size_t bytes) {
  return recv(socket.get(), data, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes);
}

void SendText(const UniqueFd& socket, const std::string& text) {
  const uint64_t size = text.size();
  TANDEM_CHECK(SendAll(socket, &size, sizeof(size)) && SendAll(socket, text.data(), size),
               "the sending process is gone");
}

std::string ReceiveText(const UniqueFd& socket) {
  uint64_t size = 0;
  TANDEM_CHECK(ReceiveAll(socket, &size, sizeof(size)), "the receiving process is gone");
  std::string text(size, '\0');
  TANDEM_CHECK(ReceiveAll(socket, text.data(), size), "the receiving process is gone");
  return text;
}

}  // namespace

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

absl::StatusOr<std::span<std::byte>> PoolReceiver::Prepare(const FrameHeader& header) {
  const size_t at = size_t{header.block} * header.payload_bytes;
  if (at + header.payload_bytes > pool_.size()) {
    return InvalidArgument("block {} lies behind the pool", header.block);
  }
  return pool_.subspan(at, header.payload_bytes);
}

void PoolReceiver::Landed(const FrameHeader&, const absl::Status& status) {
  TANDEM_CHECK(status.ok(), "a payload was damaged on the way");
}

// What the receiving process has of the device.
class ReceiverProcess::Receiving {
 public:
  Receiving(const std::string& name, size_t pool_bytes)
      : backend_(*OpenBackend(name, {})), pool_(*device().Allocate(pool_bytes)) {
    if (!device().is_host()) host_.resize(pool_bytes);
    Clear(pool_.bytes());
  }

  Device& device() const { return *backend_.device; }
  std::span<std::byte> pool() const { return pool_.bytes(); }
  RelayEnd& relay() { return relay_; }

  // The greeting of SharedSegments comes over `control`.
  void OpenMemory(const UniqueFd& control) {
    pollfd watched = {.fd = control.get(), .events = POLLIN};
    TANDEM_CHECK(poll(&watched, 1, -1) == 1, "the sending process is gone");
    std::array<std::byte, kMemoryGreetingBytes> bytes;
    auto received = ReceiveWithDescriptors(control.get(), bytes);
    TANDEM_CHECK(received.ok() && received->count == bytes.size(), "no memory was shown");
    memory_ = *OpenedSegments::Open(device(), *ParseMemoryGreeting(bytes),
                                    std::move(received->descriptors));
  }
  void ReadMemory(PoolPart part) {
    MustCopy(part.Of(pool()), *memory_->Find(part.offset, part.bytes));
  }
  // Clears it.
  bool Holds(std::span<std::byte> place, std::span<const std::byte> expected) {
    const std::span<std::byte> readable =
        device().is_host() ? place : std::span(host_).first(place.size());
    if (!device().is_host()) MustCopy(readable, place);
    const bool same = std::memcmp(readable.data(), expected.data(), place.size()) == 0;
    Clear(place);
    return same;
  }

 private:
  void Clear(std::span<std::byte> place) {
    if (device().is_host()) {
      std::memset(place.data(), 0, place.size());
      return;
    }
    const std::span<std::byte> zeros = std::span(host_).first(place.size());
    std::memset(zeros.data(), 0, zeros.size());
    MustCopy(place, zeros);
  }
  void MustCopy(std::span<std::byte> dst, std::span<const std::byte> src) {
    TANDEM_CHECK(stream_->Copy(dst, src).ok() && stream_->Synchronize().ok(), "a copy failed");
  }

  const Backend backend_;
  const DeviceBuffer pool_;
  std::vector<std::byte> host_;  // as large as the pool of a device, for comparing
  const std::unique_ptr<Stream> stream_ = *device().NewStream();
  RelayEnd relay_{device()};
  std::optional<OpenedSegments> memory_;
};

ReceiverProcess::ReceiverProcess(const std::string& device, std::span<const std::byte> source,
                                 size_t ring_bytes, const OpenTransports& open)
    : source_(source), ring_(ring_bytes) {
  int ends[2];
  TANDEM_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "no socket pair");
  control_ = UniqueFd(ends[0]);
  UniqueFd other(ends[1]);
  process_ = fork();
  TANDEM_CHECK(process_ >= 0, "no second process");
  if (process_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    control_ = std::exchange(other, UniqueFd());
    socket_.KeepReceiver();
    Serve(device, open);
  }
  socket_.KeepSender();
  other = UniqueFd();
  uint64_t count = 0;
  TANDEM_CHECK(ReceiveAll(control_, &count, sizeof(count)), "the receiving process is gone");
  for (uint64_t i = 0; i < count; ++i) addresses_.push_back(ReceiveText(control_));
}

ReceiverProcess::~ReceiverProcess() {
  control_ = UniqueFd();
  waitpid(process_, nullptr, 0);
}

void ReceiverProcess::Serve(const std::string& device, const OpenTransports& open) {
  {
    Receiving receiving(device, source_.size());
    PoolReceiver receiver(receiving.pool());
    const std::vector<std::unique_ptr<Transport>> transports = open(receiving.device(), receiver);
    const uint64_t count = transports.size();
    bool alive = SendAll(control_, &count, sizeof(count));
    for (const auto& transport : transports) SendText(control_, transport->address());
    for (Request request{}; alive && ReceiveAll(control_, &request, sizeof(request));) {
      const double answer = Carry(request, receiving);
      alive = SendAll(control_, &answer, sizeof(answer));
    }
  }
  _exit(0);
}

double ReceiverProcess::Carry(const Request& request, Receiving& receiving) {
  const std::span<std::byte> place = request.part.Of(receiving.pool());
  switch (request.order) {
    case Order::kReadRing:
      receiving.relay().Read(ring_, place);
      return 0;
    case Order::kReadSocket:
      socket_.Read(place);
      return 0;
    case Order::kOpenMemory:
      receiving.OpenMemory(control_);
      return 0;
    case Order::kReadMemory:
      receiving.ReadMemory(request.part);
      return 0;
    case Order::kCpu:
      return tandem::CpuSeconds();
    case Order::kCompare:
      return receiving.Holds(place, request.part.Of(source_)) ? 1 : 0;
  }
  return 0;
}

void ReceiverProcess::Ask(const Request& request) {
  TANDEM_CHECK(SendAll(control_, &request, sizeof(request)), "the receiving process is gone");
}

double ReceiverProcess::Answer() {
  double answer = 0;
  TANDEM_CHECK(ReceiveAll(control_, &answer, sizeof(answer)), "the receiving process is gone");
  return answer;
}

void ReceiverProcess::Show(Device& device, std::span<const std::byte> pool) {
  const std::array<std::span<const std::byte>, 1> memory = {pool};
  const auto segments = SharedSegments::Share(device, memory);
  TANDEM_CHECK(segments.ok(), segments.status().ToString());
  Ask({Order::kOpenMemory, {}});
  const absl::Status sent = SendWithDescriptors(
      control_.get(), EncodeMemoryGreeting(segments->greeting()), segments->files());
  TANDEM_CHECK(sent.ok(), sent.ToString());
  Answer();
}

void ReceiverProcess::SendByRing(RelayEnd& end, std::span<const std::byte> pool, PoolPart part) {
  Ask({Order::kReadRing, part});
  end.Write(ring_, part.Of(pool));
  Answer();
}

void ReceiverProcess::SendBySocket(std::span<const std::byte> pool, PoolPart part) {
  Ask({Order::kReadSocket, part});
  socket_.Write(part.Of(pool));
  Answer();
}

void ReceiverProcess::ReadMemory(PoolPart part) {
  Ask({Order::kReadMemory, part});
  Answer();
}

double ReceiverProcess::CpuSeconds() {
  Ask({Order::kCpu, {}});
  return Answer();
}

bool ReceiverProcess::HasAll(PoolPart part) {
  Ask({Order::kCompare, part});
  return Answer() != 0;
}

}  // namespace tandem
