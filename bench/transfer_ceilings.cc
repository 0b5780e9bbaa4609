#include "bench/transfer_ceilings.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "base/check.h"

namespace tandem {
namespace {

constexpr size_t kPieceBytes = size_t{256} << 10;
constexpr size_t kControlBytes = 4096;
constexpr size_t kCallBytes = size_t{1} << 20;
constexpr time_t kPatienceSeconds = 10;

uint32_t* Word(std::atomic<uint32_t>& word) { return reinterpret_cast<uint32_t*>(&word); }

// Until `word` is no longer `seen`.
void SleepWhile(std::atomic<uint32_t>& word, uint32_t seen, std::atomic<uint32_t>& sleeps) {
  sleeps.store(1);
  while (word.load() == seen) {
    const timespec patience = {.tv_sec = kPatienceSeconds, .tv_nsec = 0};
    const long result = syscall(SYS_futex, Word(word), FUTEX_WAIT, seen, &patience, nullptr, 0);
    TANDEM_CHECK(result == 0 || errno != ETIMEDOUT, "the other process moves no more");
  }
  sleeps.store(0);
}

void Wake(std::atomic<uint32_t>& word, const std::atomic<uint32_t>& sleeps) {
  if (sleeps.load() != 0) syscall(SYS_futex, Word(word), FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

template <typename Call>
void InCalls(size_t bytes, const Call& call) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t count = call(done, std::min(kCallBytes, bytes - done));
    TANDEM_CHECK(count > 0, "a bare socket failed");
    done += static_cast<size_t>(count);
  }
}

// The part of `bytes` that goes as number `index`.
template <typename Byte>
std::span<Byte> PieceOf(std::span<Byte> bytes, size_t index, size_t piece_bytes) {
  const size_t at = index * piece_bytes;
  return bytes.subspan(at, std::min(piece_bytes, bytes.size() - at));
}

void MustWork(const absl::Status& status) { TANDEM_CHECK(status.ok(), status.ToString()); }

void MakeBlocking(const UniqueFd& socket) { fcntl(socket.get(), F_SETFL, 0); }

}  // namespace

CopyRing::CopyRing(size_t bytes)
    : mapped_bytes_(kControlBytes + bytes),
      num_pieces_(static_cast<uint32_t>(bytes / kPieceBytes)),
      memory_(static_cast<std::byte*>(mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE,
                                           MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0))),
      control_(*reinterpret_cast<Control*>(memory_)) {
  TANDEM_CHECK(memory_ != MAP_FAILED && num_pieces_ > 0, "no shared memory for the ring");
  new (&control_) Control{};
}

CopyRing::~CopyRing() { munmap(memory_, mapped_bytes_); }

std::byte* CopyRing::Piece(uint32_t index) const {
  return memory_ + kControlBytes + index % num_pieces_ * kPieceBytes;
}

void CopyRing::Write(std::span<const std::byte> bytes) {
  for (uint32_t index = control_.written.load(); !bytes.empty(); ++index) {
    for (uint32_t read = control_.read.load(); index - read == num_pieces_;
         read = control_.read.load()) {
      SleepWhile(control_.read, read, control_.writer_sleeps);
    }
    const size_t count = std::min(kPieceBytes, bytes.size());
    std::memcpy(Piece(index), bytes.data(), count);
    bytes = bytes.subspan(count);
    control_.written.store(index + 1);
    Wake(control_.written, control_.reader_sleeps);
  }
}

void CopyRing::Read(std::span<std::byte> bytes) {
  for (uint32_t index = control_.read.load(); !bytes.empty(); ++index) {
    if (control_.written.load() == index) {
      SleepWhile(control_.written, index, control_.reader_sleeps);
    }
    const size_t count = std::min(kPieceBytes, bytes.size());
    std::memcpy(bytes.data(), Piece(index), count);
    bytes = bytes.subspan(count);
    control_.read.store(index + 1);
    Wake(control_.read, control_.writer_sleeps);
  }
}

RelayEnd::RelayEnd(Device& device)
    : is_host_(device.is_host()),
      stream_(*device.NewStream()),
      slots_(is_host_ ? DeviceBuffer() : *device.AllocateHost(2 * kSlotBytes)) {}

std::span<std::byte> RelayEnd::Slot(size_t index) const {
  return slots_.bytes().subspan(index % 2 * kSlotBytes, kSlotBytes);
}

void RelayEnd::Write(CopyRing& ring, std::span<const std::byte> bytes) {
  if (is_host_) return ring.Write(bytes);
  const size_t count = (bytes.size() + kSlotBytes - 1) / kSlotBytes;
  std::array<std::unique_ptr<Event>, 2> copied;
  const auto begin = [&](size_t index) {
    const auto piece = PieceOf(bytes, index, kSlotBytes);
    MustWork(stream_->Copy(Slot(index).first(piece.size()), piece));
    copied[index % 2] = *stream_->Record();
  };
  begin(0);
  for (size_t index = 0; index < count; ++index) {
    if (index + 1 < count) begin(index + 1);
    MustWork(copied[index % 2]->Synchronize());
    ring.Write(Slot(index).first(PieceOf(bytes, index, kSlotBytes).size()));
  }
}

void RelayEnd::Read(CopyRing& ring, std::span<std::byte> bytes) {
  if (is_host_) return ring.Read(bytes);
  const size_t count = (bytes.size() + kSlotBytes - 1) / kSlotBytes;
  std::array<std::unique_ptr<Event>, 2> copied;
  for (size_t index = 0; index < count; ++index) {
    if (copied[index % 2] != nullptr) MustWork(copied[index % 2]->Synchronize());
    const auto piece = PieceOf(bytes, index, kSlotBytes);
    ring.Read(Slot(index).first(piece.size()));
    MustWork(stream_->Copy(piece, Slot(index).first(piece.size())));
    copied[index % 2] = *stream_->Record();
  }
  MustWork(stream_->Synchronize());
}

BareSocket::BareSocket() {
  const UniqueFd listener = *Listen("127.0.0.1", 0);
  const HostPort place = {.host = "127.0.0.1", .port = std::to_string(LocalPort(listener))};
  sender_ = *StartConnect(Resolve(place, NameLookup::kNumericOnly)->front());
  MakeBlocking(listener);
  receiver_ = UniqueFd(accept(listener.get(), nullptr, nullptr));
  MakeBlocking(sender_);
}

void BareSocket::Write(std::span<const std::byte> bytes) {
  InCalls(bytes.size(),
          [&](size_t at, size_t count) { return write(sender_.get(), bytes.data() + at, count); });
}

void BareSocket::Read(std::span<std::byte> bytes) {
  InCalls(bytes.size(),
          [&](size_t at, size_t count) { return read(receiver_.get(), bytes.data() + at, count); });
}

}  // namespace tandem
