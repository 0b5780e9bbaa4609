#include "transfer/shm/ring_stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/status.h"

namespace tandem {
namespace {

absl::Status Gone() { return Unavailable("the peer closed the connection"); }

}  // namespace

absl::StatusOr<size_t> RingStream::Read(std::span<const iovec> parts) {
  RETURN_IF_ERROR(TakeWakes());
  ASSIGN_OR_RETURN(const size_t count, Get(parts));
  if (count > 0) return count;
  if (peer_gone_) return Gone();
  ASSIGN_OR_RETURN(const bool more, AwaitInput());
  return more ? Get(parts) : 0;
}

absl::StatusOr<size_t> RingStream::Write(std::span<const iovec> parts) {
  blocked_ = false;
  if (peer_gone_) return Gone();
  ASSIGN_OR_RETURN(const size_t count, Put(parts));
  if (count > 0) return count;
  ASSIGN_OR_RETURN(const bool room, AwaitRoom());
  if (room) return Put(parts);
  LookForTheEnd();
  if (peer_gone_) return Gone();
  blocked_ = true;
  return 0;
}

absl::StatusOr<size_t> RingStream::Get(std::span<const iovec> parts) {
  size_t total = 0;
  for (const iovec& part : parts) {
    std::span<std::byte> rest(static_cast<std::byte*>(part.iov_base), part.iov_len);
    while (!rest.empty()) {
      ASSIGN_OR_RETURN(
          const size_t count,
          in_.Get(rest.first(std::min(rest.size(), in_.piece_bytes() - in_.pending()))));
      if (count == 0) break;
      total += count;
      rest = rest.subspan(count);
      if (in_.pending() == in_.piece_bytes() && in_.Release()) Wake();
    }
    if (!rest.empty()) break;
  }
  return total;
}

absl::StatusOr<size_t> RingStream::Put(std::span<const iovec> parts) {
  size_t total = 0;
  for (const iovec& part : parts) {
    std::span<const std::byte> rest(static_cast<const std::byte*>(part.iov_base), part.iov_len);
    while (!rest.empty()) {
      ASSIGN_OR_RETURN(
          const size_t count,
          out_.Put(rest.first(std::min(rest.size(), out_.piece_bytes() - out_.pending()))));
      if (count == 0) break;
      total += count;
      rest = rest.subspan(count);
      if (out_.pending() == out_.piece_bytes() && out_.Publish()) Wake();
    }
    if (!rest.empty()) break;
  }
  if (out_.pending() > 0 && out_.Publish()) Wake();
  return total;
}

absl::StatusOr<bool> RingStream::AwaitInput() {
  Note(in_.Arm());
  ASSIGN_OR_RETURN(const size_t waiting, in_.Waiting());
  if (waiting > 0) Note(in_.Disarm());
  return waiting > 0;
}

absl::StatusOr<bool> RingStream::AwaitRoom() {
  Note(out_.Arm());
  ASSIGN_OR_RETURN(const size_t room, out_.Room());
  if (room > 0) Note(out_.Disarm());
  return room > 0;
}

absl::Status RingStream::TakeWakes() {
  if (wakes_owed_ == 0 || peer_gone_) return absl::OkStatus();
  std::array<std::byte, 16> wakes;
  const ssize_t count = recv(socket_, wakes.data(), wakes.size(), MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return absl::OkStatus();
  if (count <= 0) {
    peer_gone_ = true;  // what it wrote before is still read
    return absl::OkStatus();
  }
  if (count > wakes_owed_) {
    return FailedPrecondition("the peer sent {} wake-ups where it owed {}", count, wakes_owed_);
  }
  wakes_owed_ -= count;
  return absl::OkStatus();
}

void RingStream::LookForTheEnd() {
  std::byte wake;
  const ssize_t count = recv(socket_, &wake, 1, MSG_DONTWAIT | MSG_PEEK);
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) peer_gone_ = true;
}

void RingStream::Wake() {
  const std::byte wake{1};
  const ssize_t count = send(socket_, &wake, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  // A full socket has wake-ups that were not taken yet: they do as well.
  if (count < 0 && errno != EAGAIN && errno != EINTR) peer_gone_ = true;
}

void RingStream::Note(SleepChange change) {
  if (change == SleepChange::kArmed) ++wakes_owed_;
  if (change == SleepChange::kDisarmed && wakes_owed_ > 0) --wakes_owed_;
}

}  // namespace tandem
