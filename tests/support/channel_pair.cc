#include "tests/support/channel_pair.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/status.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

constexpr int kPatienceMilliseconds = 60'000;
constexpr size_t kPatternPeriod = 999'983;  // prime: no ring or piece falls in step with it

const std::vector<std::byte>& Pattern() {
  static const std::vector<std::byte> pattern = [] {
    std::mt19937_64 random(7);
    std::vector<std::byte> bytes(kPatternPeriod);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    return bytes;
  }();
  return pattern;
}

// The pattern from `at` on, at most up to its end.
std::span<const std::byte> PatternAt(uint64_t seed, size_t at) {
  return std::span(Pattern()).subspan((at + seed * 7919) % kPatternPeriod);
}

pollfd EventsOf(const ByteChannel& channel) {
  const bool output = channel.wants_output();
  return {.fd = channel.fd(), .events = static_cast<short>(POLLIN | (output ? POLLOUT : 0))};
}

// False when it failed.
bool Push(ByteChannel& channel, bool& established) {
  if (established) return true;
  const auto now = channel.Establish();
  EXPECT_TRUE(now.ok()) << now.status();
  established = now.value_or(false);
  return now.ok();
}

bool EstablishBoth(ByteChannel& connected, bool one, ByteChannel& accepted) {
  bool two = false;
  while (true) {
    if (!Push(connected, one) || !Push(accepted, two)) return false;
    if (one && two) return true;
    const std::array<const ByteChannel*, 2> both = {&connected, &accepted};
    if (!AwaitEventOfAny(both)) return false;
  }
}

}  // namespace

bool HasEventAtOnce(const ByteChannel& channel) {
  pollfd watched = EventsOf(channel);
  return poll(&watched, 1, 0) > 0;
}

bool AwaitEvent(const ByteChannel& channel) {
  const std::array<const ByteChannel*, 1> one = {&channel};
  return AwaitEventOfAny(one);
}

bool AwaitEventOfAny(std::span<const ByteChannel* const> channels) {
  std::vector<pollfd> watched;
  for (const ByteChannel* channel : channels) watched.push_back(EventsOf(*channel));
  const int count = poll(watched.data(), watched.size(), kPatienceMilliseconds);
  EXPECT_GT(count, 0) << "no event: somebody was not woken";
  return count > 0;
}

std::unique_ptr<ByteChannel> AwaitConnection(Medium& medium) {
  while (true) {
    pollfd listener = {.fd = medium.listener_fd(), .events = POLLIN};
    const int count = poll(&listener, 1, kPatienceMilliseconds);
    EXPECT_GT(count, 0) << "nobody connected";
    auto accepted = medium.Accept();
    EXPECT_TRUE(accepted.ok()) << accepted.status();
    if (count <= 0 || !accepted.ok()) return nullptr;
    if (*accepted != nullptr) return *std::move(accepted);
  }
}

ChannelPair ConnectPair(Medium& from, Medium& to) {
  auto connecting = from.Connect(to.address());
  EXPECT_TRUE(connecting.ok()) << connecting.status();
  if (!connecting.ok()) return {};
  // It may need a push of its own before the other side hears of it.
  bool established = false;
  if (!Push(**connecting, established)) return {};
  ChannelPair pair = {.connected = *std::move(connecting), .accepted = AwaitConnection(to)};
  if (pair.accepted == nullptr) return {};
  if (!EstablishBoth(*pair.connected, established, *pair.accepted)) return {};
  return pair;
}

PatternFlow::PatternFlow(ByteChannel& channel, const Plan& plan)
    : channel_(channel),
      plan_(plan),
      random_(plan.send_seed * 31 + plan.receive_seed),
      scratch_(plan.max_piece) {}

size_t PatternFlow::ReadOnce() {
  if (!failure_.ok()) return 0;
  const size_t size = 1 + random_() % plan_.max_piece;
  const size_t cut = random_() % (size + 1);
  const std::array<iovec, 2> parts = {iovec{scratch_.data(), cut},
                                      iovec{scratch_.data() + cut, size - cut}};
  const auto count = channel_.Read(parts);
  if (!count.ok()) {
    Fail(count.status());
    return 0;
  }
  for (size_t checked = 0; checked < *count;) {
    const auto expected = PatternAt(plan_.receive_seed, received_ + checked);
    const size_t length = std::min(expected.size(), *count - checked);
    if (std::memcmp(expected.data(), scratch_.data() + checked, length) != 0) {
      Fail(DataLoss("wrong bytes behind {}", received_ + checked));
      return 0;
    }
    checked += length;
  }
  received_ += *count;
  if (received_ > plan_.receive_bytes) Fail(DataLoss("{} bytes too many", received_));
  return *count;
}

size_t PatternFlow::WriteOnce() {
  if (!failure_.ok()) return 0;
  if (sent_ == plan_.send_bytes) return FlushChannel();
  const size_t size = std::min(1 + random_() % plan_.max_piece, plan_.send_bytes - sent_);
  auto first = PatternAt(plan_.send_seed, sent_);
  first = first.first(std::min(size, first.size()));
  auto second = PatternAt(plan_.send_seed, sent_ + first.size());
  second = second.first(std::min(size - first.size(), second.size()));
  const auto part = [](std::span<const std::byte> bytes) {
    return iovec{const_cast<std::byte*>(bytes.data()), bytes.size()};
  };
  const std::array<iovec, 2> parts = {part(first), part(second)};
  const auto count = channel_.Write(std::span(parts).first(second.empty() ? 1 : 2));
  if (!count.ok()) {
    Fail(count.status());
    return 0;
  }
  sent_ += *count;
  return *count;
}

size_t PatternFlow::FlushChannel() {
  if (!channel_.wants_output()) return 0;
  const auto count = channel_.Write({});
  if (!count.ok()) Fail(count.status());
  return 0;
}

bool PatternFlow::Advance() {
  bool moved = false;
  while (ReadOnce() > 0) moved = true;
  while (WriteOnce() > 0) moved = true;
  return moved;
}

void PatternFlow::RunToEnd() {
  while (failure_.ok()) {
    Advance();
    if (done() || !failure_.ok()) return;
    ++waits_;
    if (!AwaitEvent(channel_)) return Fail(DeadlineExceeded("no event after {}", received_));
  }
}

void PatternFlow::Fail(const absl::Status& status) {
  if (failure_.ok()) failure_ = status;
}

}  // namespace tandem
