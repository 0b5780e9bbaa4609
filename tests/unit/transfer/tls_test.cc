// TLS over a pair of sockets, without a transport: who is let in, what is told to who is not, and
// that bytes come through however little the socket takes.
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/test_certificates.h"
#include "tests/support/transport_probe.h"
#include "tests/support/wait_limit.h"
#include "transfer/media/tcp/tcp_medium.h"

namespace tandem::tls_test {
namespace {

using Bytes = std::vector<std::byte>;
using ::testing::HasSubstr;

std::string Text(const absl::Status& status) { return std::string(status.message()); }

struct Sockets {
  UniqueFd connected;
  UniqueFd accepted;
};

Sockets NewSockets(int send_buffer_bytes = 0) {
  int fds[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
  if (send_buffer_bytes > 0) {
    setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &send_buffer_bytes, sizeof(send_buffer_bytes));
  }
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

std::unique_ptr<TlsContext> Load(const TlsFiles& files) {
  auto context = TlsContext::Load(files);
  EXPECT_TRUE(context.ok()) << context.status();
  return *std::move(context);
}

struct Ends {
  absl::StatusOr<bool> connected = false;
  absl::StatusOr<bool> accepted = false;
};

// Lets both sides have their turns until each has an end, or nothing moves any more.
Ends ShakeHands(ByteChannel& connected, ByteChannel& accepted) {
  Ends ends;
  const auto turn = [](ByteChannel& channel, absl::StatusOr<bool>& end) {
    if (end.ok() && !*end) end = channel.Establish();
  };
  for (int i = 0; i < 20; ++i) {
    turn(connected, ends.connected);
    turn(accepted, ends.accepted);
  }
  return ends;
}

absl::StatusOr<size_t> WriteAll(ByteChannel& channel, std::span<const std::byte> bytes) {
  const iovec part = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  return channel.Write({&part, 1});
}

absl::StatusOr<size_t> ReadSome(ByteChannel& channel, std::span<std::byte> bytes) {
  const iovec part = {bytes.data(), bytes.size()};
  return channel.Read({&part, 1});
}

class TlsTest : public ::testing::Test {
 protected:
  TlsTest() : directory_(::testing::TempDir() + "/tls_test_" + TestName()) {
    std::filesystem::create_directories(directory_);
  }
  ~TlsTest() override { std::filesystem::remove_all(directory_); }

  static std::string TestName() {
    return ::testing::UnitTest::GetInstance()->current_test_info()->name();
  }

  const std::string directory_;
  TestAuthority ours_{(std::filesystem::create_directories(directory_), directory_), "ours"};
  TestAuthority foreign_{directory_, "foreign"};
};

TEST_F(TlsTest, TwoWorkersOfOneAuthorityTalk) {
  const auto first = Load(ours_.Issue("first"));
  const auto second = Load(ours_.Issue("second"));
  Sockets sockets = NewSockets();
  const auto connected = first->NewChannel(std::move(sockets.connected), ChannelSide::kConnected);
  const auto accepted = second->NewChannel(std::move(sockets.accepted), ChannelSide::kAccepted);
  const Ends ends = ShakeHands(*connected, *accepted);
  ASSERT_TRUE(ends.connected.ok() && *ends.connected) << ends.connected.status();
  ASSERT_TRUE(ends.accepted.ok() && *ends.accepted) << ends.accepted.status();
  const Bytes sent = PatternBytes(1000, 1);
  EXPECT_EQ(*WriteAll(*connected, sent), sent.size());
  Bytes received(sent.size());
  EXPECT_EQ(*ReadSome(*accepted, received), sent.size());
  EXPECT_EQ(received, sent);
  EXPECT_EQ(*ReadSome(*accepted, received), 0u);
}

// The socket takes little at a time; what Write was given and did not take is thrown away by the
// caller, who comes back with something else, as when a stream is aborted.
TEST_F(TlsTest, WhatWriteDidNotTakeIsNotSent) {
  const auto context = Load(ours_.Issue("worker"));
  Sockets sockets = NewSockets(4096);
  const auto connected = context->NewChannel(std::move(sockets.connected), ChannelSide::kConnected);
  const auto accepted = context->NewChannel(std::move(sockets.accepted), ChannelSide::kAccepted);
  ASSERT_TRUE(*ShakeHands(*connected, *accepted).accepted);
  Bytes sent;
  Bytes received;
  Bytes buffer(10000);
  for (uint64_t turn = 0; sent.size() < (1 << 20); ++turn) {
    const Bytes offered = PatternBytes(60000, turn);
    const auto taken = WriteAll(*connected, offered);
    ASSERT_TRUE(taken.ok()) << taken.status();
    sent.insert(sent.end(), offered.begin(), offered.begin() + static_cast<ptrdiff_t>(*taken));
    const auto count = ReadSome(*accepted, buffer);
    ASSERT_TRUE(count.ok()) << count.status();
    received.insert(received.end(), buffer.begin(),
                    buffer.begin() + static_cast<ptrdiff_t>(*count));
  }
  for (int idle = 0; idle < 10 && received.size() < sent.size();) {
    ASSERT_TRUE(connected->Write({}).ok()) << "flushes what it holds";
    const auto count = ReadSome(*accepted, buffer);
    ASSERT_TRUE(count.ok()) << count.status();
    received.insert(received.end(), buffer.begin(),
                    buffer.begin() + static_cast<ptrdiff_t>(*count));
    idle = *count == 0 ? idle + 1 : 0;
  }
  EXPECT_TRUE(received == sent) << received.size() << " of " << sent.size() << " bytes";
  EXPECT_FALSE(connected->wants_output());
}

TEST_F(TlsTest, TheEndOfThePeerIsHeardAfterItsBytes) {
  const auto context = Load(ours_.Issue("worker"));
  Sockets sockets = NewSockets();
  auto connected = context->NewChannel(std::move(sockets.connected), ChannelSide::kConnected);
  const auto accepted = context->NewChannel(std::move(sockets.accepted), ChannelSide::kAccepted);
  ASSERT_TRUE(*ShakeHands(*connected, *accepted).accepted);
  ASSERT_TRUE(WriteAll(*connected, PatternBytes(100, 1)).ok());
  connected.reset();
  Bytes received(200);
  EXPECT_EQ(*ReadSome(*accepted, received), 100u);
  EXPECT_EQ(ReadSome(*accepted, received).status().code(), absl::StatusCode::kUnavailable);
}

// Both sides of a handshake that must fail.
class TlsRefusalTest : public TlsTest {
 protected:
  Ends Shake(const TlsFiles& connecting, const TlsFiles& accepting) {
    const auto first = Load(connecting);
    const auto second = Load(accepting);
    Sockets sockets = NewSockets();
    const auto connected = first->NewChannel(std::move(sockets.connected), ChannelSide::kConnected);
    const auto accepted = second->NewChannel(std::move(sockets.accepted), ChannelSide::kAccepted);
    return ShakeHands(*connected, *accepted);
  }
};

constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

TEST_F(TlsRefusalTest, ForeignWorkerThatConnects) {
  // It trusts us, we do not trust it.
  TlsFiles stranger = foreign_.Issue("stranger");
  stranger.ca = ours_.ca_file();
  const Ends ends = Shake(stranger, ours_.Issue("worker"));
  EXPECT_EQ(ends.accepted.status().code(), kRefused);
  EXPECT_THAT(Text(ends.accepted.status()), HasSubstr("certificate is not trusted"));
  EXPECT_EQ(ends.connected.status().code(), kRefused) << ends.connected.status();
  EXPECT_THAT(Text(ends.connected.status()), HasSubstr("refused this worker"));
}

TEST_F(TlsRefusalTest, ForeignWorkerThatAccepts) {
  TlsFiles stranger = foreign_.Issue("stranger");
  stranger.ca = ours_.ca_file();
  const Ends ends = Shake(ours_.Issue("worker"), stranger);
  EXPECT_EQ(ends.connected.status().code(), kRefused);
  EXPECT_THAT(Text(ends.connected.status()), HasSubstr("certificate is not trusted"));
  EXPECT_EQ(ends.accepted.status().code(), kRefused);
  EXPECT_THAT(Text(ends.accepted.status()), HasSubstr("refused this worker"));
}

TEST_F(TlsRefusalTest, ExpiredCertificate) {
  const Ends ends =
      Shake(ours_.Issue("old", TestAuthority::Validity::kExpired), ours_.Issue("worker"));
  EXPECT_EQ(ends.accepted.status().code(), kRefused);
  EXPECT_THAT(Text(ends.accepted.status()), HasSubstr("expired"));
  EXPECT_EQ(ends.connected.status().code(), kRefused);
}

TEST_F(TlsRefusalTest, ACertificateThatIsNotAWorkersThatConnects) {
  TlsRefusals refusals;
  for (const std::string uri : {"spiffe://tandem/client/c", "spiffe://tandem/router/r"}) {
    const auto context = *TlsContext::Load(ours_.Issue("worker"), &refusals);
    const auto stranger = Load(ours_.IssueFor("stranger", {uri}));
    Sockets sockets = NewSockets();
    const auto connected =
        stranger->NewChannel(std::move(sockets.connected), ChannelSide::kConnected);
    const auto accepted = context->NewChannel(std::move(sockets.accepted), ChannelSide::kAccepted);
    const Ends ends = ShakeHands(*connected, *accepted);
    EXPECT_EQ(ends.accepted.status().code(), absl::StatusCode::kPermissionDenied);
    EXPECT_THAT(Text(ends.accepted.status()), HasSubstr(uri + " was presented"));
    EXPECT_EQ(ends.connected.status().code(), absl::StatusCode::kPermissionDenied);
    EXPECT_THAT(Text(ends.connected.status()), HasSubstr("the peer refused this worker"));
  }
  ASSERT_EQ(refusals.counts().size(), 1u);
  EXPECT_EQ(refusals.counts().front().port, TlsPort::kKv);
  EXPECT_EQ(refusals.counts().front().reason, TlsRefusalReason::kWrongRole);
  EXPECT_EQ(refusals.counts().front().refused, 2u);
}

TEST_F(TlsRefusalTest, ACertificateThatIsNotAWorkersThatAccepts) {
  const Ends ends =
      Shake(ours_.Issue("worker"), ours_.IssueFor("router", {"spiffe://tandem/router/r"}));
  EXPECT_EQ(ends.connected.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(Text(ends.connected.status()), HasSubstr("spiffe://tandem/worker/* is needed"));
}

TEST_F(TlsRefusalTest, ATrustedCertificateWithoutAnIdentity) {
  const Ends ends = Shake(ours_.IssueFor("nobody", {}), ours_.Issue("worker"));
  EXPECT_EQ(ends.accepted.status().code(), absl::StatusCode::kUnauthenticated);
}

TEST_F(TlsTest, NewChannelsUseTheFilesAsTheyAreThen) {
  const TlsFiles files = ours_.Issue("worker");
  const auto context = Load(files);
  const auto other = Load(foreign_.Issue("other"));
  const auto talks = [&] {
    Sockets sockets = NewSockets();
    const auto connected = other->NewChannel(std::move(sockets.connected), ChannelSide::kConnected);
    const auto accepted = context->NewChannel(std::move(sockets.accepted), ChannelSide::kAccepted);
    const Ends ends = ShakeHands(*connected, *accepted);
    return ends.connected.ok() && *ends.connected && ends.accepted.ok() && *ends.accepted;
  };
  EXPECT_FALSE(talks());
  const TlsFiles next = foreign_.Issue("next");
  std::filesystem::rename(next.cert, files.cert);
  std::filesystem::rename(next.key, files.key);
  std::filesystem::copy_file(next.ca, files.ca, std::filesystem::copy_options::overwrite_existing);
  const absl::Time end = absl::Now() + WaitLimit();
  bool talked = false;
  while (!talked && absl::Now() < end) talked = talks();
  EXPECT_TRUE(talked);
}

TEST_F(TlsRefusalTest, PeerThatSpeaksFramesInsteadOfTls) {
  const auto context = Load(ours_.Issue("worker"));
  Sockets sockets = NewSockets();
  const auto accepted = context->NewChannel(std::move(sockets.accepted), ChannelSide::kAccepted);
  const auto header = EncodeFrameHeader({.type = FrameType::kCommit, .stream = 1});
  ASSERT_EQ(send(sockets.connected.get(), header.data(), header.size(), 0),
            static_cast<ssize_t>(header.size()));
  const auto established = accepted->Establish();
  EXPECT_EQ(established.status().code(), kRefused);
  EXPECT_THAT(Text(established.status()), HasSubstr("does not speak TLS"));
}

// A client of OpenSSL as it comes, without a certificate, that speaks no later version.
absl::Status EndWithBareClient(const TlsContext& context, int latest_version) {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> bare(SSL_CTX_new(TLS_client_method()),
                                                               &SSL_CTX_free);
  SSL_CTX_set_max_proto_version(bare.get(), latest_version);
  const std::unique_ptr<SSL, decltype(&SSL_free)> client(SSL_new(bare.get()), &SSL_free);
  Sockets sockets = NewSockets();
  SSL_set_fd(client.get(), sockets.connected.get());
  const auto accepted = context.NewChannel(std::move(sockets.accepted), ChannelSide::kAccepted);
  absl::StatusOr<bool> established = false;
  for (int turn = 0; turn < 5 && established.ok() && !*established; ++turn) {
    SSL_connect(client.get());
    established = accepted->Establish();
  }
  return established.status();
}

TEST_F(TlsRefusalTest, PeerWithoutACertificate) {
  const absl::Status status = EndWithBareClient(*Load(ours_.Issue("worker")), TLS1_3_VERSION);
  EXPECT_EQ(status.code(), kRefused);
  EXPECT_THAT(Text(status), HasSubstr("did not return a certificate"));
}

TEST_F(TlsRefusalTest, PeerOfAnOldVersion) {
  const absl::Status status = EndWithBareClient(*Load(ours_.Issue("worker")), TLS1_2_VERSION);
  EXPECT_EQ(status.code(), kRefused);
  EXPECT_THAT(Text(status), HasSubstr("unsupported protocol"));
}

TEST_F(TlsRefusalTest, PeerThatIsGoneIsUnavailable) {
  const auto context = Load(ours_.Issue("worker"));
  Sockets sockets = NewSockets();
  const auto connected = context->NewChannel(std::move(sockets.connected), ChannelSide::kConnected);
  sockets.accepted = UniqueFd();
  absl::StatusOr<bool> established = connected->Establish();
  if (established.ok()) established = connected->Establish();
  EXPECT_EQ(established.status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(TlsTest, FilesThatCannotBeUsedAreNamed) {
  const TlsFiles good = ours_.Issue("worker");
  const auto message = [](const TlsFiles& files) {
    const auto context = TlsContext::Load(files);
    EXPECT_EQ(context.status().code(), absl::StatusCode::kInvalidArgument);
    return Text(context.status());
  };
  TlsFiles files = good;
  files.cert = directory_ + "/none.pem";
  EXPECT_THAT(message(files), AllOf(HasSubstr("none.pem"), HasSubstr("No such file")));
  files = good;
  files.key = ours_.Issue("other").key;
  EXPECT_THAT(message(files), AllOf(HasSubstr("other.key"), HasSubstr("mismatch")));
  files = good;
  files.ca = directory_ + "/empty.pem";
  std::ofstream(files.ca).close();
  EXPECT_THAT(message(files), HasSubstr("empty.pem"));
  files = good;
  files.key.clear();
  EXPECT_THAT(message(files), HasSubstr("or none of them"));
}

TEST_F(TlsTest, NoFilesMeanNoTls) {
  EXPECT_EQ(TlsFiles().Check(), absl::OkStatus());
  EXPECT_FALSE(TlsFiles().enabled());
}

}  // namespace
}  // namespace tandem::tls_test
