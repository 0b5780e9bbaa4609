#include "tests/support/faulty_medium.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/status.h"

namespace tandem {
namespace {

class FaultyChannel final : public ByteChannel {
 public:
  FaultyChannel(std::unique_ptr<ByteChannel> channel, const FrameHook& hook,
                FrameDirection direction, uint64_t connection)
      : channel_(std::move(channel)), hook_(hook), faults_(direction, connection, 0) {}

  int fd() const override { return channel_->fd(); }
  bool wants_output() const override { return channel_->wants_output(); }
  absl::StatusOr<bool> Establish() override { return channel_->Establish(); }
  absl::StatusOr<size_t> Write(std::span<const iovec> parts) override {
    return channel_->Write(parts);
  }

  SideChannel* side_channel() override { return channel_->side_channel(); }

  absl::StatusOr<size_t> Read(std::span<const iovec> parts) override {
    std::array<char, 64 << 10> bytes;
    const iovec part = {bytes.data(), bytes.size()};
    while (ready_.empty()) {
      if (faults_.cut()) return Unavailable("the connection was cut");
      ASSIGN_OR_RETURN(const size_t count, channel_->Read({&part, 1}));
      if (count == 0) return 0;
      faults_.Feed({bytes.data(), count}, hook_, ready_);
    }
    return Fill(parts);
  }

 private:
  size_t Fill(std::span<const iovec> parts) {
    size_t filled = 0;
    for (const iovec& part : parts) {
      const size_t count = std::min(part.iov_len, ready_.size() - filled);
      std::copy_n(ready_.data() + filled, count, static_cast<char*>(part.iov_base));
      filled += count;
    }
    ready_.erase(0, filled);
    return filled;
  }

  const std::unique_ptr<ByteChannel> channel_;
  const FrameHook& hook_;
  FrameFaults faults_;
  std::string ready_;
};

class FaultyMedium final : public Medium {
 public:
  FaultyMedium(std::unique_ptr<Medium> medium, FrameHook hook)
      : medium_(std::move(medium)), hook_(std::move(hook)) {}

  std::string_view name() const override { return medium_->name(); }
  std::string address() const override { return medium_->address(); }
  absl::Status MayReach(std::string_view peer) const override { return medium_->MayReach(peer); }
  int listener_fd() const override { return medium_->listener_fd(); }
  absl::StatusOr<std::unique_ptr<ByteChannel>> Accept() override {
    ASSIGN_OR_RETURN(std::unique_ptr<ByteChannel> channel, medium_->Accept());
    if (channel == nullptr) return nullptr;
    return Faulty(std::move(channel), FrameDirection::kToReceiver);
  }
  absl::StatusOr<std::unique_ptr<ByteChannel>> Connect(std::string_view peer) override {
    ASSIGN_OR_RETURN(std::unique_ptr<ByteChannel> channel, medium_->Connect(peer));
    return Faulty(std::move(channel), FrameDirection::kToSender);
  }
  bool has_side_channels() const override { return medium_->has_side_channels(); }
  absl::Status MayCarry(std::span<const std::byte> payload) const override {
    return medium_->MayCarry(payload);
  }
  size_t buffer_bytes() const override { return medium_->buffer_bytes(); }

 private:
  std::unique_ptr<ByteChannel> Faulty(std::unique_ptr<ByteChannel> channel,
                                      FrameDirection direction) {
    return std::make_unique<FaultyChannel>(std::move(channel), hook_, direction, connections_++);
  }

  const std::unique_ptr<Medium> medium_;
  const FrameHook hook_;
  uint64_t connections_ = 0;
};

}  // namespace

std::unique_ptr<Medium> NewFaultyMedium(std::unique_ptr<Medium> medium, FrameHook hook) {
  return std::make_unique<FaultyMedium>(std::move(medium), std::move(hook));
}

}  // namespace tandem
