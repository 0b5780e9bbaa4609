// Whole transports with TLS, and without it on one side.
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/frame_proxy.h"
#include "tests/support/tcp_transport.h"
#include "tests/support/test_certificates.h"
#include "tests/support/transport_probe.h"
#include "transfer/media/tcp/tls_channel.h"

namespace tandem::tls_transport_test {
namespace {

constexpr uint64_t kEpoch = 7;

class TlsTransportTest : public ::testing::Test {
 protected:
  TlsTransportTest() : ours_(::testing::TempDir(), fmt::format("transports-{}", getpid())) {}

  static std::unique_ptr<Transport> Start(const TlsFiles& files, FrameReceiver* receiver) {
    auto transport = OpenTcpTransport({.tls = files}, receiver);
    EXPECT_TRUE(transport.ok()) << transport.status();
    return *std::move(transport);
  }

  // How a stream of one payload from `sender` to `address` ends.
  absl::Status Send(Transport& sender, const std::string& address) {
    EXPECT_EQ(streams_.Open(sender, address, 1, kEpoch, Duration::zero(), ends_.Callback()),
              absl::OkStatus());
    EXPECT_EQ(streams_.PostOne(sender, {1, kEpoch}, {.payload = payload_}), absl::OkStatus());
    EXPECT_EQ(streams_.Finish(sender, {1, kEpoch}), absl::OkStatus());
    return ends_.Wait(1);
  }

  const std::vector<std::byte> payload_ = PatternBytes(3 << 20, 1);
  TestAuthority ours_;
  StreamBook streams_;
  EndProbe ends_;
  ReceiverProbe receiver_probe_;
};

TEST_F(TlsTransportTest, FramesGoHiddenOverTheWire) {
  const auto proxy = *FrameProxy::Open();
  const auto receiver = Start(ours_.Issue("receiver"), &receiver_probe_);
  const auto sender = Start(ours_.Issue("sender"), nullptr);
  proxy->SetTarget(receiver->address());
  EXPECT_EQ(Send(*sender, proxy->address()), absl::OkStatus());
  EXPECT_EQ(receiver_probe_.BytesOf(1, 0, 0), payload_);
  EXPECT_EQ(proxy->counts().frames, 0u) << "who listens sees no frame";
  EXPECT_EQ(proxy->counts().not_frames, 2u);
}

TEST_F(TlsTransportTest, TheMemoryOfItsConnectionsIsCounted) {
  const auto receiver = Start(ours_.Issue("receiver"), &receiver_probe_);
  auto sender = Start(ours_.Issue("sender"), nullptr);
  const size_t before = receiver->stats().buffer_bytes;
  EXPECT_EQ(sender->stats().buffer_bytes, before);
  ASSERT_EQ(Send(*sender, receiver->address()), absl::OkStatus());
  EXPECT_EQ(receiver->stats().buffer_bytes, before + TlsChannel::kBufferBytes);
  EXPECT_EQ(sender->stats().buffer_bytes, before + TlsChannel::kBufferBytes);
  sender.reset();
  const absl::Time end = absl::Now() + kPatience;
  while (receiver->stats().buffer_bytes != before && absl::Now() < end) std::this_thread::yield();
  EXPECT_EQ(receiver->stats().buffer_bytes, before) << "until they close";
}

TEST_F(TlsTransportTest, SenderWithoutTlsIsRefused) {
  const auto receiver = Start(ours_.Issue("receiver"), &receiver_probe_);
  const auto sender = Start({}, nullptr);
  const absl::Status status = Send(*sender, receiver->address());
  // UNAVAILABLE where the connection was reset before what the receiver said was read.
  EXPECT_THAT(status.code(), ::testing::AnyOf(absl::StatusCode::kFailedPrecondition,
                                              absl::StatusCode::kUnavailable));
  EXPECT_TRUE(receiver_probe_.calls().empty());
}

TEST_F(TlsTransportTest, ReceiverWithoutTlsIsNotTalkedTo) {
  const auto receiver = Start({}, &receiver_probe_);
  const auto sender = Start(ours_.Issue("sender"), nullptr);
  const absl::Status status = Send(*sender, receiver->address());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("--kv-tls options, too?"));
  EXPECT_TRUE(receiver_probe_.calls().empty());
}

TEST_F(TlsTransportTest, ForeignSenderIsRefusedAndToldWhy) {
  TestAuthority foreign(::testing::TempDir(), fmt::format("foreign-{}", getpid()));
  TlsFiles stranger = foreign.Issue("stranger");
  stranger.ca = ours_.ca_file();
  const auto receiver = Start(ours_.Issue("receiver"), &receiver_probe_);
  const auto sender = Start(stranger, nullptr);
  const absl::Status status = Send(*sender, receiver->address());
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("refused this worker"));
  EXPECT_TRUE(receiver_probe_.calls().empty());
}

}  // namespace
}  // namespace tandem::tls_transport_test
