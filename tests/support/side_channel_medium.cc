#include "tests/support/side_channel_medium.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/time/time.h"
#include "base/hash.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace tandem {

void SideChannelBoard::SetHeld(bool held) {
  absl::MutexLock lock(&mutex_);
  held_ = held;
  Ring();
}

void SideChannelBoard::SetRoom(size_t payloads, size_t enough_bytes) {
  absl::MutexLock lock(&mutex_);
  room_.payloads = payloads;
  room_.enough_bytes = enough_bytes;
  Ring();
}

void SideChannelBoard::BlamePeer() {
  absl::MutexLock lock(&mutex_);
  room_.peer_holds_it = true;
}

void SideChannelBoard::FailOffers(absl::Status status) {
  absl::MutexLock lock(&mutex_);
  offers_ = std::move(status);
}

void SideChannelBoard::FailExpects(absl::Status status) {
  absl::MutexLock lock(&mutex_);
  expects_ = std::move(status);
}

int SideChannelBoard::expected() const {
  absl::MutexLock lock(&mutex_);
  return expected_;
}

size_t SideChannelBoard::largest_operation() const {
  absl::MutexLock lock(&mutex_);
  return largest_;
}

bool SideChannelBoard::AwaitExpected(int count) const {
  absl::MutexLock lock(&mutex_);
  const auto enough = [this, count]()
                          ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return expected_ >= count; };
  return mutex_.AwaitWithTimeout(absl::Condition(&enough), absl::Minutes(1));
}

bool SideChannelBoard::held() const {
  absl::MutexLock lock(&mutex_);
  return held_;
}

SideChannel::Room SideChannelBoard::room() const {
  absl::MutexLock lock(&mutex_);
  return room_;
}

absl::Status SideChannelBoard::Push(Bytes operation) {
  absl::MutexLock lock(&mutex_);
  if (offers_.ok()) operations_.push_back(std::move(operation));
  return offers_;
}

absl::StatusOr<SideChannelBoard::Bytes> SideChannelBoard::Pop(size_t size) {
  absl::MutexLock lock(&mutex_);
  ++expected_;
  largest_ = std::max(largest_, size);
  if (!expects_.ok()) return expects_;
  if (operations_.empty() || operations_.front().size() != size) {
    return InvalidArgument("no operation of {} bytes was offered", size);
  }
  Bytes operation = std::move(operations_.front());
  operations_.pop_front();
  return operation;
}

int SideChannelBoard::AddBell() {
  absl::MutexLock lock(&mutex_);
  return bells_.emplace_back(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
}

void SideChannelBoard::Ring() const {
  for (const int bell : bells_) eventfd_write(bell, 1);
}

namespace {

class BoardSideChannel final : public SideChannel {
 public:
  explicit BoardSideChannel(SideChannelBoard& board) : board_(board) {}

  Room room(uint64_t) override { return board_.room(); }
  absl::StatusOr<uint32_t> Offer(std::span<OfferedPayload> payloads) override {
    SideChannelBoard::Bytes operation;
    for (OfferedPayload& payload : payloads) {
      payload.handle = operation.size();
      payload.hash = Hash64(payload.bytes);
      operation.insert(operation.end(), payload.bytes.begin(), payload.bytes.end());
    }
    const auto size = static_cast<uint32_t>(operation.size());
    RETURN_IF_ERROR(board_.Push(std::move(operation)));
    return size;
  }
  absl::Status Expect(uint32_t bytes) override {
    ASSIGN_OR_RETURN(arrived_, board_.Pop(bytes));
    announced_ = true;
    return absl::OkStatus();
  }
  bool arriving() override { return announced_ && board_.held(); }
  absl::StatusOr<std::span<const std::byte>> Find(uint64_t place, size_t bytes) const override {
    if (bytes > arrived_.size() || place > arrived_.size() - bytes) {
      return InvalidArgument("{} bytes at {} of an operation of {}", bytes, place, arrived_.size());
    }
    return std::span(arrived_).subspan(place, bytes);
  }

 private:
  SideChannelBoard& board_;
  SideChannelBoard::Bytes arrived_;
  bool announced_ = false;
};

class BoardChannel final : public ByteChannel {
 public:
  BoardChannel(std::unique_ptr<ByteChannel> channel, SideChannelBoard& board)
      : channel_(std::move(channel)),
        bell_(board.AddBell()),
        watch_(epoll_create1(EPOLL_CLOEXEC)),
        side_channel_(board) {
    epoll_event event{.events = EPOLLIN, .data = {}};
    epoll_ctl(watch_.get(), EPOLL_CTL_ADD, bell_, &event);
  }

  int fd() const override { return watch_.get(); }
  bool wants_output() const override { return false; }
  absl::StatusOr<bool> Establish() override {
    ASSIGN_OR_RETURN(const bool established, channel_->Establish());
    Watch();
    return established;
  }
  absl::StatusOr<size_t> Read(std::span<const iovec> parts) override {
    eventfd_t rings = 0;
    eventfd_read(bell_, &rings);
    return channel_->Read(parts);
  }
  absl::StatusOr<size_t> Write(std::span<const iovec> parts) override {
    const absl::StatusOr<size_t> count = channel_->Write(parts);
    Watch();
    return count;
  }
  SideChannel* side_channel() override { return &side_channel_; }

 private:
  // The descriptor of one that connects may change, and so does what it waits for.
  void Watch() {
    const int fd = channel_->fd();
    epoll_event event{.events = EPOLLIN | (channel_->wants_output() ? EPOLLOUT : 0u), .data = {}};
    if (fd < 0) return;
    if (epoll_ctl(watch_.get(), EPOLL_CTL_MOD, fd, &event) == 0) return;
    epoll_ctl(watch_.get(), EPOLL_CTL_ADD, fd, &event);
  }

  const std::unique_ptr<ByteChannel> channel_;
  const int bell_;
  const UniqueFd watch_;
  BoardSideChannel side_channel_;
};

class SideChannelMedium final : public Medium {
 public:
  SideChannelMedium(std::unique_ptr<Medium> medium, SideChannelBoard& board)
      : medium_(std::move(medium)), board_(board) {}

  std::string_view name() const override { return medium_->name(); }
  std::string address() const override { return medium_->address(); }
  absl::Status MayReach(std::string_view peer) const override { return medium_->MayReach(peer); }
  int listener_fd() const override { return medium_->listener_fd(); }
  absl::StatusOr<std::unique_ptr<ByteChannel>> Accept() override {
    ASSIGN_OR_RETURN(std::unique_ptr<ByteChannel> channel, medium_->Accept());
    if (channel == nullptr) return nullptr;
    return std::make_unique<BoardChannel>(std::move(channel), board_);
  }
  absl::StatusOr<std::unique_ptr<ByteChannel>> Connect(std::string_view peer) override {
    ASSIGN_OR_RETURN(std::unique_ptr<ByteChannel> channel, medium_->Connect(peer));
    return std::make_unique<BoardChannel>(std::move(channel), board_);
  }
  bool has_side_channels() const override { return true; }
  size_t buffer_bytes() const override { return medium_->buffer_bytes(); }

 private:
  const std::unique_ptr<Medium> medium_;
  SideChannelBoard& board_;
};

}  // namespace

std::unique_ptr<Medium> NewSideChannelMedium(std::unique_ptr<Medium> medium,
                                             SideChannelBoard& board) {
  return std::make_unique<SideChannelMedium>(std::move(medium), board);
}

}  // namespace tandem
