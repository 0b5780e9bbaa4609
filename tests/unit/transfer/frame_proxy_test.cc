// The proxy that breaks connections for fault tests: what it is told to do, it does, and nothing
// else.
#include "tests/support/frame_proxy.h"

#include <poll.h>
#include <sys/socket.h>

#include <optional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/frame_faults.h"
#include "tests/support/transport_probe.h"

namespace tandem::frame_proxy_test {
namespace {

using Kind = FrameAction::Kind;
using ::testing::ElementsAre;

std::string DataFrame(uint32_t block, size_t payload_bytes = 300) {
  const auto payload = PatternBytes(payload_bytes, block);
  const auto header = EncodeFrameHeader({.type = FrameType::kData,
                                         .stream = 1,
                                         .block = block,
                                         .payload_bytes = static_cast<uint32_t>(payload_bytes),
                                         .payload_hash = Hash64(payload)});
  std::string frame(reinterpret_cast<const char*>(header.data()), header.size());
  return frame.append(reinterpret_cast<const char*>(payload.data()), payload.size());
}

std::string CommitFrame() {
  const auto header = EncodeFrameHeader({.type = FrameType::kCommit, .stream = 1, .frames = 3});
  return {reinterpret_cast<const char*>(header.data()), header.size()};
}

// Acts on the data frame of one block.
FrameHook On(uint32_t block, FrameAction action) {
  return [=](const ObservedFrame& frame) {
    const bool meant = frame.header.type == FrameType::kData && frame.header.block == block;
    return meant ? action : FrameAction();
  };
}

class FrameFaultsTest : public ::testing::Test {
 protected:
  // What goes on of three blocks and a commit that come in pieces of `piece` bytes.
  std::string Through(const FrameHook& hook, size_t piece = 100) {
    const std::string all = DataFrame(0) + DataFrame(1) + DataFrame(2) + CommitFrame();
    for (size_t at = 0; at < all.size(); at += piece) {
      faults_.Feed(std::string_view(all).substr(at, piece), hook, out_);
    }
    return out_;
  }

  FrameFaults faults_{FrameDirection::kToReceiver, 0, 0};
  std::string out_;
};

TEST_F(FrameFaultsTest, PassesFramesHoweverTheyArrive) {
  const std::string all = DataFrame(0) + DataFrame(1) + DataFrame(2) + CommitFrame();
  for (const size_t piece : {1, 64, 77, 5000}) {
    out_.clear();
    EXPECT_EQ(Through(On(9, {}), piece), all) << "pieces of " << piece;
  }
  EXPECT_EQ(faults_.waiting_bytes(), 0u);
}

TEST_F(FrameFaultsTest, DropsDuplicatesAndSwaps) {
  EXPECT_EQ(Through(On(1, {Kind::kDrop})), DataFrame(0) + DataFrame(2) + CommitFrame());
  out_.clear();
  EXPECT_EQ(Through(On(1, {Kind::kDuplicate})),
            DataFrame(0) + DataFrame(1) + DataFrame(1) + DataFrame(2) + CommitFrame());
  out_.clear();
  EXPECT_EQ(Through(On(1, {Kind::kSwap})),
            DataFrame(0) + DataFrame(2) + DataFrame(1) + CommitFrame());
}

TEST_F(FrameFaultsTest, AFrameWithoutASuccessorIsSwappedByRelease) {
  const FrameHook swap_all = [](const ObservedFrame&) { return FrameAction{Kind::kSwap}; };
  faults_.Feed(DataFrame(0), swap_all, out_);
  EXPECT_EQ(out_, "");
  faults_.Release(swap_all, out_);
  EXPECT_EQ(out_, DataFrame(0));
}

TEST_F(FrameFaultsTest, FlipsAsManyBitsAsItSays) {
  const auto flipped = [](const std::string& a, const std::string& b, size_t begin, size_t end) {
    int bits = 0;
    for (size_t i = begin; i < end; ++i) bits += __builtin_popcount((a[i] ^ b[i]) & 0xFF);
    return bits;
  };
  const size_t size = DataFrame(1).size();
  const std::string payload = Through(On(1, {Kind::kFlipPayload, 5, 1})).substr(size, size);
  EXPECT_EQ(flipped(payload, DataFrame(1), 0, kFrameHeaderBytes), 0);
  EXPECT_EQ(flipped(payload, DataFrame(1), kFrameHeaderBytes, size), 5);
  out_.clear();
  const std::string header = Through(On(1, {Kind::kFlipHeader, 64, 2})).substr(size, size);
  EXPECT_EQ(flipped(header, DataFrame(1), 0, kFrameHeaderBytes), 64);
  EXPECT_EQ(flipped(header, DataFrame(1), kFrameHeaderBytes, size), 0);
}

TEST_F(FrameFaultsTest, CutsWhereItSays) {
  const std::string before = DataFrame(0);
  const auto cut_by = [&](Kind kind) {
    FrameFaults faults(FrameDirection::kToReceiver, 0, 0);
    std::string out;
    faults.Feed(DataFrame(0) + DataFrame(1) + DataFrame(2), On(1, {kind}), out);
    EXPECT_TRUE(faults.cut());
    faults.Feed(CommitFrame(), On(1, {kind}), out);
    return out;
  };
  EXPECT_EQ(cut_by(Kind::kCutBefore), before);
  EXPECT_EQ(cut_by(Kind::kCutInside), before + DataFrame(1).substr(0, 182));
  EXPECT_EQ(cut_by(Kind::kCutAfter), before + DataFrame(1));
}

TEST_F(FrameFaultsTest, HoldsInsideAFrameUntilReleased) {
  const FrameHook hook = On(1, {Kind::kHoldInside});
  EXPECT_EQ(Through(hook), DataFrame(0) + DataFrame(1).substr(0, DataFrame(1).size() / 2));
  EXPECT_TRUE(faults_.held());
  faults_.Release(hook, out_);
  EXPECT_EQ(out_, DataFrame(0) + DataFrame(1) + DataFrame(2) + CommitFrame());
  EXPECT_EQ(faults_.waiting_bytes(), 0u);
  out_.clear();
  EXPECT_EQ(Through(On(2, {Kind::kDrop})), DataFrame(0) + DataFrame(1) + CommitFrame())
      << "the frame behind the one that was held is asked about";
}

TEST_F(FrameFaultsTest, HoldsUntilReleased) {
  const FrameHook hook = On(1, {Kind::kHold});
  EXPECT_EQ(Through(hook), DataFrame(0));
  EXPECT_TRUE(faults_.held());
  faults_.Release(hook, out_);
  EXPECT_FALSE(faults_.held()) << "the frame that was held is not held again";
  EXPECT_EQ(out_, DataFrame(0) + DataFrame(1) + DataFrame(2) + CommitFrame());
}

TEST_F(FrameFaultsTest, WhatIsNoFramePassesAsItIs) {
  const std::string text(200, 'x');
  const FrameHook drop_all = [](const ObservedFrame&) { return FrameAction{Kind::kDrop}; };
  faults_.Feed(text, drop_all, out_);
  faults_.Feed(DataFrame(0), drop_all, out_);
  EXPECT_TRUE(faults_.not_frames());
  EXPECT_EQ(out_, text + DataFrame(0));
}

// A blocking socket of the test.
class Peer {
 public:
  explicit Peer(UniqueFd fd) : fd_(std::move(fd)) {}

  static Peer ConnectTo(const std::string& address) {
    const auto addresses = Resolve(*ParseHostPort(address), NameLookup::kNumericOnly);
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto* name = reinterpret_cast<const sockaddr*>(&addresses->front().storage);
    EXPECT_EQ(connect(fd.get(), name, addresses->front().size), 0);
    return Peer(std::move(fd));
  }

  void Send(const std::string& bytes) {
    EXPECT_EQ(send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // `size` bytes, fewer when the connection ends before.
  std::string Receive(size_t size) {
    std::string bytes(size, 0);
    size_t filled = 0;
    while (filled < size) {
      const ssize_t count = recv(fd_.get(), bytes.data() + filled, size - filled, 0);
      if (count <= 0) break;
      filled += static_cast<size_t>(count);
    }
    bytes.resize(filled);
    return bytes;
  }
  uint16_t port() const { return LocalPort(fd_); }
  bool IsOver() { return Receive(1).empty(); }

 private:
  UniqueFd fd_;
};

class FrameProxyTest : public ::testing::Test {
 protected:
  FrameProxyTest() : proxy_(*FrameProxy::Open()), listener_(*Listen("127.0.0.1", 0)) {
    proxy_->SetTarget(fmt::format("127.0.0.1:{}", LocalPort(listener_)));
  }

  Peer Accept() {
    pollfd watched = {listener_.get(), POLLIN, 0};
    EXPECT_EQ(poll(&watched, 1, -1), 1);
    return Peer(UniqueFd(accept(listener_.get(), nullptr, nullptr)));
  }

  std::unique_ptr<FrameProxy> proxy_;
  UniqueFd listener_;
};

TEST_F(FrameProxyTest, PassesBothWaysOnEachConnection) {
  Peer first = Peer::ConnectTo(proxy_->address());
  Peer first_end = Accept();
  Peer second = Peer::ConnectTo(proxy_->address());
  Peer second_end = Accept();
  first.Send(DataFrame(1));
  second.Send(DataFrame(2));
  EXPECT_EQ(first_end.Receive(DataFrame(1).size()), DataFrame(1));
  EXPECT_EQ(second_end.Receive(DataFrame(2).size()), DataFrame(2));
  second_end.Send(CommitFrame());
  EXPECT_EQ(second.Receive(kFrameHeaderBytes), CommitFrame());
  EXPECT_EQ(proxy_->counts().connections, 2u);
  EXPECT_EQ(proxy_->counts().frames, 3u);
}

TEST_F(FrameProxyTest, TheHookSeesWhereAFrameGoes) {
  absl::Mutex mutex;
  std::vector<std::string> seen;
  std::vector<uint16_t> ports;
  proxy_->SetHook([&](const ObservedFrame& frame) {
    absl::MutexLock lock(&mutex);
    seen.push_back(fmt::format("{} {} {}", frame.connection, static_cast<int>(frame.direction),
                               static_cast<int>(frame.header.type)));
    ports.push_back(frame.sender_port);
    return FrameAction();
  });
  Peer peer = Peer::ConnectTo(proxy_->address());
  Peer end = Accept();
  peer.Send(DataFrame(1));
  end.Receive(DataFrame(1).size());
  end.Send(CommitFrame());
  peer.Receive(kFrameHeaderBytes);
  absl::MutexLock lock(&mutex);
  EXPECT_THAT(seen, ElementsAre("0 0 1", "0 1 2"));
  EXPECT_THAT(ports, ElementsAre(peer.port(), peer.port()));
}

TEST_F(FrameProxyTest, CutEndsBothSidesAfterWhatWentBefore) {
  proxy_->SetHook(On(1, {Kind::kCutInside}));
  auto peer = std::make_optional(Peer::ConnectTo(proxy_->address()));
  Peer end = Accept();
  end.Send(CommitFrame());  // not read by the peer before the end
  ASSERT_TRUE(proxy_->Await(&ProxyCounts::frames, 1));
  peer->Send(DataFrame(0) + DataFrame(1));
  EXPECT_EQ(end.Receive(10000), DataFrame(0) + DataFrame(1).substr(0, 182));
  EXPECT_EQ(peer->Receive(10000), CommitFrame());
  peer.reset();
  EXPECT_TRUE(proxy_->AwaitClosedBySender(0));
  EXPECT_EQ(proxy_->counts().cut, 1u);
  Peer next = Peer::ConnectTo(proxy_->address());
  Peer next_end = Accept();
  next.Send(DataFrame(2));
  EXPECT_EQ(next_end.Receive(DataFrame(2).size()), DataFrame(2)) << "others are proxied on";
}

TEST_F(FrameProxyTest, HoldsOneDirectionUntilReleased) {
  proxy_->SetHook(On(1, {Kind::kHold}));
  Peer peer = Peer::ConnectTo(proxy_->address());
  Peer end = Accept();
  peer.Send(DataFrame(1) + DataFrame(2));
  ASSERT_TRUE(proxy_->Await(&ProxyCounts::held, 1));
  end.Send(CommitFrame());
  EXPECT_EQ(peer.Receive(kFrameHeaderBytes), CommitFrame()) << "the other way is open";
  proxy_->Release();
  EXPECT_EQ(end.Receive(2 * DataFrame(1).size()), DataFrame(1) + DataFrame(2));
}

TEST_F(FrameProxyTest, HealPassesWhatWaits) {
  proxy_->SetHook([](const ObservedFrame&) { return FrameAction{Kind::kHold}; });
  Peer peer = Peer::ConnectTo(proxy_->address());
  Peer end = Accept();
  peer.Send(DataFrame(1) + DataFrame(2));
  ASSERT_TRUE(proxy_->Await(&ProxyCounts::held, 1));
  proxy_->Heal();
  EXPECT_EQ(end.Receive(2 * DataFrame(1).size()), DataFrame(1) + DataFrame(2));
}

TEST_F(FrameProxyTest, CutsConnectionsThatAreIdle) {
  Peer peer = Peer::ConnectTo(proxy_->address());
  Peer end = Accept();
  peer.Send(DataFrame(1));
  EXPECT_EQ(end.Receive(DataFrame(1).size()), DataFrame(1));
  proxy_->CutConnections();
  EXPECT_TRUE(peer.IsOver());
  EXPECT_TRUE(end.IsOver());
}

TEST_F(FrameProxyTest, WithoutATargetConnectionsEnd) {
  proxy_->SetTarget("");
  Peer peer = Peer::ConnectTo(proxy_->address());
  EXPECT_TRUE(peer.IsOver());
  EXPECT_EQ(proxy_->counts().unreached, 1u);
}

TEST_F(FrameProxyTest, LargeFramesPassWhole) {
  Peer peer = Peer::ConnectTo(proxy_->address());
  Peer end = Accept();
  const std::string large = DataFrame(1, 8 << 20);
  std::thread sender([&] { peer.Send(large); });
  EXPECT_TRUE(end.Receive(large.size()) == large);
  sender.join();
}

}  // namespace
}  // namespace tandem::frame_proxy_test
