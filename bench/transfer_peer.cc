#include "bench/transfer_peer.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "kernels/cpu/device.h"

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

ReceiverProcess::ReceiverProcess(std::span<const std::byte> source, size_t ring_bytes,
                                 const OpenTransports& open)
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
    Serve(open);
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

void ReceiverProcess::Serve(const OpenTransports& open) {
  {
    const std::unique_ptr<Device> device = NewCpuDevice();
    DeviceBuffer pool = *device->Allocate(source_.size());
    std::memset(pool.data(), 0, pool.size());
    PoolReceiver receiver(pool.bytes());
    const std::vector<std::unique_ptr<Transport>> transports = open(receiver);
    const uint64_t count = transports.size();
    bool alive = SendAll(control_, &count, sizeof(count));
    for (const auto& transport : transports) SendText(control_, transport->address());
    for (Request request{}; alive && ReceiveAll(control_, &request, sizeof(request));) {
      const double answer = Carry(request, pool.bytes());
      alive = SendAll(control_, &answer, sizeof(answer));
    }
  }
  _exit(0);
}

double ReceiverProcess::Carry(const Request& request, std::span<std::byte> pool) {
  const std::span<std::byte> place = pool.first(request.bytes);
  switch (request.order) {
    case Order::kReadRing:
      ring_.Read(place);
      return 0;
    case Order::kReadSocket:
      socket_.Read(place);
      return 0;
    case Order::kCpu:
      return tandem::CpuSeconds();
    case Order::kCompare: {
      const bool same = std::memcmp(place.data(), source_.data(), place.size()) == 0;
      std::memset(place.data(), 0, place.size());
      return same ? 1 : 0;
    }
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

void ReceiverProcess::SendByRing(size_t bytes) {
  Ask({Order::kReadRing, bytes});
  ring_.Write(source_.first(bytes));
  Answer();
}

void ReceiverProcess::SendBySocket(size_t bytes) {
  Ask({Order::kReadSocket, bytes});
  socket_.Write(source_.first(bytes));
  Answer();
}

double ReceiverProcess::CpuSeconds() {
  Ask({Order::kCpu, 0});
  return Answer();
}

bool ReceiverProcess::HasAll(size_t bytes) {
  Ask({Order::kCompare, bytes});
  return Answer() != 0;
}

}  // namespace tandem
