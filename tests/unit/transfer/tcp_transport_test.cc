// What only TCP can do to a transport: peers that speak wrongly, stop half-way or do not answer.
// The peer is a plain socket of the test.
#include "tests/support/tcp_transport.h"

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/raw_peer.h"
#include "tests/support/transport_probe.h"

namespace tandem::tcp_transport_test {
namespace {

using Kind = ReceiverProbe::Call::Kind;
using Bytes = std::vector<std::byte>;
using std::chrono::milliseconds;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr uint64_t kEpoch = 7;

// A peer or a path that is as slow as the test says.
void SpinFor(Duration time) {
  const TimePoint end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

FrameHeader DataHeader(uint64_t stream, const Bytes& payload) {
  return {.type = FrameType::kData,
          .stream = stream,
          .epoch = kEpoch,
          .payload_bytes = static_cast<uint32_t>(payload.size()),
          .payload_hash = Hash64(payload)};
}

class TcpTransportTest : public ::testing::Test {
 protected:
  void Start(const FramedOptions& framed = {}, const TcpOptions& options = {}) {
    auto transport = OpenTcpTransport(options, &receiver_probe_, framed);
    ASSERT_TRUE(transport.ok()) << transport.status();
    transport_ = *std::move(transport);
  }

  RawPeer Peer() {
    RawPeer peer = Stranger();
    peer.Greet();
    return peer;
  }
  RawPeer Stranger() { return RawPeer::ConnectTo(transport_->address()); }

  absl::Status Open(const std::string& peer, uint64_t stream) {
    return streams_.Open(*transport_, peer, stream, kEpoch, Duration::zero(), ends_.Callback());
  }

  const Bytes payload_ = PatternBytes(5000, 1);
  StreamBook streams_;
  EndProbe ends_;
  ReceiverProbe receiver_probe_;
  std::unique_ptr<Transport> transport_;
};

TEST_F(TcpTransportTest, SpeaksTheWireFormat) {
  Start();
  RawPeer peer = Peer();
  peer.Send(HeaderBytes(DataHeader(1, payload_)));
  peer.Send(payload_);
  peer.Send(HeaderBytes(
      {.type = FrameType::kCommit, .stream = 1, .epoch = kEpoch, .block = 5, .frames = 1}));
  EXPECT_EQ(peer.ReceiveHeader(),
            (FrameHeader{.type = FrameType::kAck, .stream = 1, .epoch = kEpoch, .block = 5}));
  EXPECT_EQ(receiver_probe_.BytesOf(1, 0, 0), payload_);
}

TEST_F(TcpTransportTest, PeerThatDiesInAPayloadGivesThePlaceBack) {
  Start();
  RawPeer peer = Peer();
  peer.Send(HeaderBytes(DataHeader(1, payload_)));
  peer.Send(std::span(payload_).first(1234));
  ASSERT_TRUE(receiver_probe_.WaitFor(1, Kind::kPrepare, 1));
  peer.Close();
  ASSERT_TRUE(receiver_probe_.WaitFor(1, Kind::kLanded, 1));
  EXPECT_EQ(receiver_probe_.CallsOf(1).back().status.code(), absl::StatusCode::kUnavailable);
  transport_.reset();
  EXPECT_EQ(receiver_probe_.Count(1, Kind::kLanded), 1);
}

TEST_F(TcpTransportTest, ShutdownGivesThePlaceBack) {
  Start();
  RawPeer peer = Peer();
  peer.Send(HeaderBytes(DataHeader(1, payload_)));
  ASSERT_TRUE(receiver_probe_.WaitFor(1, Kind::kPrepare, 1));
  transport_.reset();
  EXPECT_EQ(receiver_probe_.Count(1, Kind::kLanded), 1);
  EXPECT_EQ(receiver_probe_.CallsOf(1).back().status.code(), absl::StatusCode::kUnavailable);
}

TEST_F(TcpTransportTest, CorruptedPayloadIsAskedForAgain) {
  Start();
  RawPeer peer = Peer();
  Bytes corrupted = payload_;
  corrupted[4999] ^= std::byte{0x10};
  peer.Send(HeaderBytes(DataHeader(1, payload_)));
  peer.Send(corrupted);
  const FrameHeader commit = {
      .type = FrameType::kCommit, .stream = 1, .epoch = kEpoch, .block = 1, .frames = 1};
  peer.Send(HeaderBytes(commit));
  EXPECT_EQ(peer.ReceiveHeader(),
            (FrameHeader{.type = FrameType::kResend, .stream = 1, .epoch = kEpoch, .frames = 1}));
  EXPECT_EQ(transport_->stats().refused.corrupted, 1u);
  peer.Send(HeaderBytes(DataHeader(1, payload_)));
  peer.Send(payload_);
  peer.Send(HeaderBytes(commit));
  EXPECT_EQ(peer.ReceiveHeader().type, FrameType::kAck);
  EXPECT_EQ(receiver_probe_.BytesOf(1, 0, 0), payload_);
}

TEST_F(TcpTransportTest, WhatIsNoFrameClosesTheConnection) {
  Start();
  const auto closes_on = [&](const Bytes& bytes) {
    RawPeer peer = Peer();
    peer.Send(bytes);
    RawPeer stranger = Stranger();
    stranger.Send(bytes);
    return peer.IsClosed() && stranger.IsClosed();
  };
  EXPECT_TRUE(closes_on(PatternBytes(64, 9)));
  const std::string http =
      "GET / HTTP/1.1\r\nHost: x\r\nUser-Agent: somebody who is lost\r\n\r\n....";
  const auto text = std::as_bytes(std::span(http));
  EXPECT_TRUE(closes_on(Bytes(text.begin(), text.end())));
  Bytes damaged = HeaderBytes(DataHeader(1, payload_));
  damaged[20] ^= std::byte{1};
  EXPECT_TRUE(closes_on(damaged));
  EXPECT_TRUE(closes_on(HeaderBytes({.type = FrameType::kAck, .stream = 1, .epoch = kEpoch})))
      << "a sender does not acknowledge";
  EXPECT_TRUE(receiver_probe_.calls().empty());
  EXPECT_EQ(transport_->stats().refused.malformed, 8u);
  EXPECT_EQ(transport_->stats().refused.closed, 8u);
  RawPeer peer = Peer();
  peer.Send(HeaderBytes({.type = FrameType::kCommit, .stream = 1, .epoch = kEpoch}));
  EXPECT_EQ(peer.ReceiveHeader().type, FrameType::kAck) << "others are served on";
}

TEST_F(TcpTransportTest, TheHelloComesFirstAndOnceAndIsOfOneConnection) {
  Start();
  const auto closes_on = [&](std::vector<FrameHeader> headers) {
    RawPeer peer = Stranger();
    for (const FrameHeader& header : headers) peer.Send(HeaderBytes(header));
    return peer.IsClosed();
  };
  const FrameHeader hello = {.type = FrameType::kHello, .stream = 77, .block = 1};
  EXPECT_TRUE(closes_on({DataHeader(1, payload_)}));
  EXPECT_TRUE(closes_on({{.type = FrameType::kCommit, .stream = 1, .epoch = kEpoch}}));
  EXPECT_TRUE(closes_on({{.type = FrameType::kRenew, .stream = 1, .epoch = kEpoch}}));
  EXPECT_TRUE(closes_on({hello, hello}));
  EXPECT_TRUE(closes_on({{.type = FrameType::kHello, .stream = 78, .block = 2}}));
  EXPECT_TRUE(closes_on({{.type = FrameType::kHello, .stream = 78, .layer = 1, .block = 2}}));
  EXPECT_TRUE(receiver_probe_.calls().empty());
}

TEST_F(TcpTransportTest, ReceiverThatSpeaksWronglyIsLeft) {
  Start();
  const FrameHeader wrong[] = {
      {.type = FrameType::kAck, .stream = 1, .epoch = kEpoch},  // before the commit
      {.type = FrameType::kCommit, .stream = 1, .epoch = kEpoch},
      DataHeader(1, payload_)};
  for (const FrameHeader& header : wrong) {
    RawListener listener;
    EndProbe ends;
    ASSERT_EQ(streams_.Open(*transport_, listener.address(), 1, kEpoch, Duration::zero(),
                            ends.Callback()),
              absl::OkStatus());
    RawPeer peer = listener.Accept();
    peer.GreetBack();
    peer.Send(HeaderBytes(header));
    EXPECT_TRUE(peer.IsClosed());
    EXPECT_EQ(ends.Wait(1).code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(ends.count(1), 1);
  }
}

TEST_F(TcpTransportTest, RejectNamesPeerAndCode) {
  Start();
  RawListener listener;
  ASSERT_EQ(Open(listener.address(), 1), absl::OkStatus());
  RawPeer peer = listener.Accept();
  const auto code = static_cast<uint8_t>(absl::StatusCode::kResourceExhausted);
  // For a stream that is not there first: that is nothing.
  peer.Send(HeaderBytes({.type = FrameType::kReject, .code = code, .stream = 5, .epoch = 1}));
  peer.Send(HeaderBytes({.type = FrameType::kReject, .code = code, .stream = 1, .epoch = kEpoch}));
  const absl::Status status = ends_.Wait(1);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr(listener.address()));
}

TEST_F(TcpTransportTest, HalfSentFrameOfAnAbortedStreamIsFinished) {
  Start();
  RawListener listener;
  auto payload = PatternBytes(kMaxPayloadBytes, 3);  // more than sockets hold
  const FrameHeader expected = {.type = FrameType::kData,
                                .stream = 1,
                                .epoch = kEpoch,
                                .payload_bytes = kMaxPayloadBytes,
                                .payload_hash = Hash64(payload)};
  ASSERT_EQ(Open(listener.address(), 1), absl::OkStatus());
  ASSERT_EQ(Open(listener.address(), 2), absl::OkStatus());
  ASSERT_EQ(streams_.PostOne(*transport_, {1, kEpoch}, {.payload = payload}), absl::OkStatus());
  ASSERT_EQ(streams_.PostOne(*transport_, {1, kEpoch}, {.block = 1, .payload = payload}),
            absl::OkStatus());
  RawPeer peer = listener.Accept();
  peer.GreetBack();
  EXPECT_EQ(peer.ReceiveHeader(), expected);  // it is on its way
  streams_.Abort(*transport_, {1, kEpoch});
  std::ranges::fill(payload, std::byte{0xEE});
  ASSERT_EQ(streams_.Finish(*transport_, {2, kEpoch}), absl::OkStatus());
  EXPECT_EQ(Hash64(peer.Receive(kMaxPayloadBytes)), expected.payload_hash);
  const FrameHeader next = peer.ReceiveHeader();
  EXPECT_EQ(next.type, FrameType::kCommit) << "the second frame of stream 1 was not sent";
  EXPECT_EQ(next.stream, 2u);
}

TEST_F(TcpTransportTest, ConnectingTimesOut) {
  // Connections that nobody accepts fill the backlog; the next one gets no answer.
  RawListener listener(0);
  std::vector<UniqueFd> fillers;
  const auto address = Resolve(*ParseHostPort(listener.address()), NameLookup::kNumericOnly);
  for (int i = 0; i < 8; ++i) fillers.push_back(*StartConnect(address->front()));
  Start({.connect_timeout = std::chrono::milliseconds(50)});
  ASSERT_EQ(Open(listener.address(), 1), absl::OkStatus());
  const absl::Status status = ends_.Wait(1);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("timed out"));
}

TEST_F(TcpTransportTest, StalledSenderIsLeft) {
  Start({.stall_timeout = std::chrono::milliseconds(50)});
  RawPeer idle = Peer();
  idle.Send(HeaderBytes({.type = FrameType::kCommit, .stream = 2, .epoch = kEpoch}));
  EXPECT_EQ(idle.ReceiveHeader().type, FrameType::kAck);
  RawPeer stalled = Peer();
  stalled.Send(HeaderBytes(DataHeader(1, payload_)));
  EXPECT_TRUE(stalled.IsClosed());
  EXPECT_EQ(receiver_probe_.CallsOf(1).back().status.code(), absl::StatusCode::kUnavailable);
  idle.Send(HeaderBytes({.type = FrameType::kCommit, .stream = 3, .epoch = kEpoch}));
  EXPECT_EQ(idle.ReceiveHeader().type, FrameType::kAck) << "between frames one may be silent";
}

TEST_F(TcpTransportTest, ReceiverThatDoesNotReadIsLeft) {
  Start({.stall_timeout = std::chrono::milliseconds(50)});
  RawListener listener;
  const auto payload = PatternBytes(kMaxPayloadBytes, 3);
  ASSERT_EQ(Open(listener.address(), 1), absl::OkStatus());
  ASSERT_EQ(streams_.PostOne(*transport_, {1, kEpoch}, {.payload = payload}), absl::OkStatus());
  RawPeer peer = listener.Accept();
  EXPECT_EQ(ends_.Wait(1).code(), absl::StatusCode::kUnavailable);
}

// The peer's system takes every byte, as a network that swallows all of them would, and the peer
// never answers. The payload is posted before the peer allows any, so it is under way as soon as
// the peer owes an answer, however slow the machine is.
TEST_F(TcpTransportTest, PeerThatTakesEverythingAndAnswersNothingIsLeft) {
  Start({.answer_timeout = milliseconds(500)});
  RawListener listener;
  ASSERT_EQ(
      streams_.Open(*transport_, listener.address(), 1, kEpoch, milliseconds(5), ends_.Callback()),
      absl::OkStatus());
  ASSERT_EQ(streams_.PostOne(*transport_, {1, kEpoch}, {.payload = payload_}), absl::OkStatus());
  RawPeer peer = listener.Accept();
  peer.GreetBack();
  EXPECT_TRUE(peer.IsClosed());  // having read renewal after renewal
  const absl::Status status = ends_.Wait(1);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              ContainsRegex("answered nothing for [0-9.]+ s, 5000 bytes are on their way"));
}

TEST_F(TcpTransportTest, PeerThatNeverGreetsBackIsLeft) {
  Start({.answer_timeout = milliseconds(50)});
  RawListener listener;
  ASSERT_EQ(Open(listener.address(), 1), absl::OkStatus());
  EXPECT_TRUE(listener.Accept().IsClosed());
  EXPECT_EQ(ends_.Wait(1).code(), absl::StatusCode::kUnavailable);
}

// The reason why it was aborted is most likely the peer: who takes another way then, shall.
TEST_F(TcpTransportTest, AbortedStreamOfASilentPeerEndsUnavailable) {
  Start({.answer_timeout = milliseconds(1000)});
  RawListener listener;
  ASSERT_EQ(Open(listener.address(), 1), absl::OkStatus());
  ASSERT_EQ(streams_.PostOne(*transport_, {1, kEpoch}, {.payload = payload_}), absl::OkStatus());
  RawPeer peer = listener.Accept();
  peer.GreetBack();
  EXPECT_EQ(peer.ReceiveHeader().type, FrameType::kData);
  SpinFor(milliseconds(250));
  streams_.Abort(*transport_, {1, kEpoch});
  EXPECT_EQ(ends_.Wait(1).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(transport_->links().front().streams_failed, 1u);
}

TEST_F(TcpTransportTest, PeerThatStandsStillForAShorterTimeIsWaitedFor) {
  Start({.answer_timeout = milliseconds(5000)});
  RawListener listener;
  ASSERT_EQ(Open(listener.address(), 1), absl::OkStatus());
  ASSERT_EQ(streams_.Finish(*transport_, {1, kEpoch}), absl::OkStatus());
  RawPeer peer = listener.Accept();
  SpinFor(milliseconds(150));
  peer.GreetBack();
  EXPECT_EQ(peer.ReceiveHeader().type, FrameType::kCommit);
  SpinFor(milliseconds(150));
  peer.Send(HeaderBytes({.type = FrameType::kAck, .stream = 1, .epoch = kEpoch, .block = 1}));
  EXPECT_EQ(ends_.Wait(1), absl::OkStatus());
}

// One payload that is under way for longer than an answer may take: the receiver says meanwhile
// that it is coming.
TEST_F(TcpTransportTest, PayloadThatIsLongUnderWayIsWaitedFor) {
  constexpr size_t kPiece = 8 << 10;
  constexpr int kPieces = 40;
  Start({.answer_timeout = milliseconds(1000)});
  const Bytes payload = PatternBytes(kPiece * kPieces, 3);
  RawListener listener;
  ASSERT_EQ(Open(listener.address(), 1), absl::OkStatus());
  ASSERT_EQ(streams_.PostOne(*transport_, {1, kEpoch}, {.payload = payload}), absl::OkStatus());
  ASSERT_EQ(streams_.Finish(*transport_, {1, kEpoch}), absl::OkStatus());
  RawPeer sender = listener.Accept();
  RawPeer receiver = Stranger();
  std::thread answers([&] {
    for (Bytes frame; (frame = receiver.Receive(kFrameHeaderBytes)).size() == kFrameHeaderBytes;) {
      sender.Send(frame);
    }
  });
  receiver.Send(sender.Receive(kFrameHeaderBytes));  // the hello
  receiver.Send(sender.Receive(kFrameHeaderBytes));  // of the payload, once the hello is answered
  for (int i = 0; i < kPieces; ++i) {
    receiver.Send(sender.Receive(kPiece));
    SpinFor(milliseconds(40));
  }
  receiver.Send(sender.Receive(kFrameHeaderBytes));  // the commit
  EXPECT_EQ(ends_.Wait(1), absl::OkStatus());
  transport_.reset();
  answers.join();
}

TEST_F(TcpTransportTest, WhatTheRateHoldsBackIsOwedNoAnswer) {
  constexpr size_t kBytes = 200'000;
  Start({.max_bytes_per_second = 5 * kBytes, .answer_timeout = milliseconds(100)});
  const Bytes payload = PatternBytes(kBytes, 3);
  ASSERT_EQ(Open(transport_->address(), 1), absl::OkStatus());
  for (uint32_t block = 0; block < 4; ++block) {
    ASSERT_EQ(streams_.PostOne(*transport_, {1, kEpoch}, {.block = block, .payload = payload}),
              absl::OkStatus());
  }
  ASSERT_EQ(streams_.Finish(*transport_, {1, kEpoch}), absl::OkStatus());
  EXPECT_EQ(ends_.Wait(1), absl::OkStatus());
}

TEST_F(TcpTransportTest, ConnectionsAreBounded) {
  Start({.max_connections = 2});
  RawPeer first = Peer();
  RawPeer second = Peer();
  RawPeer third = Peer();
  EXPECT_TRUE(third.IsClosed());
  second.Close();
  first.Send(HeaderBytes({.type = FrameType::kCommit, .stream = 1, .epoch = kEpoch}));
  EXPECT_EQ(first.ReceiveHeader().type, FrameType::kAck);
}

TEST_F(TcpTransportTest, QueueOfAStreamIsBounded) {
  Start({.max_queued_frames = 3});
  RawListener listener;
  ASSERT_EQ(Open(listener.address(), 1), absl::OkStatus());
  const auto payload = PatternBytes(kMaxPayloadBytes, 3);  // the first does not get through
  for (uint32_t block = 0; block < 3; ++block) {
    ASSERT_EQ(streams_.PostOne(*transport_, {1, kEpoch}, {.block = block, .payload = payload}),
              absl::OkStatus());
  }
  EXPECT_EQ(streams_.PostOne(*transport_, {1, kEpoch}, {.block = 3, .payload = payload}).code(),
            absl::StatusCode::kResourceExhausted);
  transport_.reset();
  EXPECT_EQ(ends_.count(1), 1);
}

TEST_F(TcpTransportTest, HostNamesAreResolved) {
  ASSERT_NO_FATAL_FAILURE(Start({}, {.listen_host = "localhost"}));
  EXPECT_THAT(transport_->address(), ::testing::StartsWith("localhost:"));
  ASSERT_EQ(Open(transport_->address(), 1), absl::OkStatus());
  ASSERT_EQ(streams_.Finish(*transport_, {1, kEpoch}), absl::OkStatus());
  EXPECT_EQ(ends_.Wait(1), absl::OkStatus());
}

TEST_F(TcpTransportTest, AddressesThatCannotBe) {
  Start();
  for (const char* address : {"", "host", ":80", "host:", "host:http", "host:65536", "host:-1"}) {
    EXPECT_EQ(Open(address, 1).code(), absl::StatusCode::kInvalidArgument) << address;
  }
}

TEST_F(TcpTransportTest, PortThatIsTaken) {
  Start();
  const auto port = static_cast<uint16_t>(std::stoi(ParseHostPort(transport_->address())->port));
  const auto second = OpenTcpTransport({.listen_port = port}, nullptr);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(std::to_string(port)));
}

TEST_F(TcpTransportTest, AdvertisedHostIsWhatPeersAreTold) {
  Start({}, {.advertised_host = "worker-7"});
  EXPECT_THAT(transport_->address(), ::testing::StartsWith("worker-7:"));
}

}  // namespace
}  // namespace tandem::tcp_transport_test
