// Requests, calls and frames at the ports of a router and of a worker that claim or carry too much, with
// TLS and without: they are refused and counted, and take no more memory than they may.

#include <string>
#include <string_view>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/abuse_fixture.h"
#include "tests/support/call_by_bytes.h"
#include "tests/support/hostile_peer.h"
#include "tests/support/http2_bytes.h"
#include "tests/support/raw_peer.h"

namespace tandem::abuse_requests_test {
namespace {

using abuse::AbuseTest;
using abuse::AsText;
using abuse::kGrpcMemoryMib;
using ::testing::StartsWith;

constexpr char kGenerate[] = "/tandem.v1.Inference/Generate";
constexpr char kGenerateOnWorker[] = "/tandem.v1.Worker/Generate";

TEST_P(AbuseTest, LargeHttpRequestsAreRefusedUnread) {
  const std::string header = "POST /v1/completions HTTP/1.1\r\nHost: h\r\n";
  const std::string megabyte(1 << 20, 'x');
  for (const AbusedPort& port : fleet_->ports()) {
    if (port.protocol != PortProtocol::kHttp) continue;
    SCOPED_TRACE(port.name);
    const double refused = fleet_->Refused(port);
    HostilePeer headers = ConnectTo(port);
    headers.Send(fmt::format("{}X: {}", header, megabyte));
    EXPECT_THAT(headers.ReceiveAll(), StartsWith("HTTP/1.1 431"));
    HostilePeer length = ConnectTo(port);
    length.Send(header + "Content-Length: 1000000000000\r\n\r\n");
    EXPECT_THAT(length.ReceiveAll(), StartsWith("HTTP/1.1 413"));
    HostilePeer chunked = ConnectTo(port);
    chunked.Send(header + "Transfer-Encoding: chunked\r\n\r\n");
    // Without an end: more than is taken, and less than is thrown away after the refusal.
    for (int i = 0; i < 32 && chunked.Send("100000\r\n" + megabyte + "\r\n"); ++i) {
    }
    EXPECT_THAT(chunked.ReceiveAll(), StartsWith("HTTP/1.1 413"));
    EXPECT_EQ(fleet_->Refused(port), refused + 3);
  }
}

TEST_P(AbuseTest, GrpcCallsThatClaimMuchAndSendLittleEnd) {
  constexpr int kRounds = 8;
  for (const AbusedPort& port : fleet_->ports()) {
    if (port.protocol != PortProtocol::kGrpc) continue;
    SCOPED_TRACE(port.name);
    const std::string method = port.process == "router" ? kGenerate : kGenerateOnWorker;
    for (const std::string& bomb :
         {http2::HeadersOfSize(method, 1 << 20), http2::MessageOfLength(method, 0xFFFFFFFF)}) {
      for (int i = 0; i < kRounds; ++i) {
        HostilePeer peer = ConnectTo(port);
        peer.Send(http2::Opening() + bomb);
        EXPECT_TRUE(http2::EndsFirstStream(peer.ReceiveUntil(http2::EndsFirstStream)));
      }
    }
  }
}

TEST_P(AbuseTest, GrpcCallsWithTooManyHeadersAreRefused) {
  constexpr int kRounds = 4;
  const auto refused = [this] {
    return fleet_->Metric("router", "tandem_large_headers_refused_total", "");
  };
  const double before = refused();
  const AbusedPort& router = fleet_->ports().front();
  for (const std::string method : {kGenerate, "/tandem.v1.Inference/GetStatus"}) {
    for (int i = 0; i < kRounds; ++i) {
      HostilePeer peer = ConnectTo(router);
      peer.Send(http2::Opening() + http2::HeadersOfSize(method, 16 << 10));
      EXPECT_TRUE(http2::EndsWithStatus(peer.ReceiveUntil(http2::EndsFirstStream), '3')) << method;
    }
  }
  EXPECT_EQ(refused(), before + 2 * kRounds);
}

// gRPC gathers a message before it looks at its size, so that only --grpc-memory-mib bounds it.
// This one has more bytes than all that the process may take.
TEST_P(AbuseTest, LargeGrpcMessagesTakeNoMoreMemoryThanGrpcMayHave) {
  const std::string large(size_t{4 * kGrpcMemoryMib} << 20, '\x12');
  for (const AbusedPort& port : fleet_->ports()) {
    if (port.protocol != PortProtocol::kGrpc) continue;
    const grpc::Status status =
        StatusOfCall(fmt::format("127.0.0.1:{}", port.port), port.peer,
                     port.process == "router" ? kGenerate : kGenerateOnWorker, large);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED)
        << port.name << ": " << status.error_message();
  }
}

// Announced in a request of six bytes, and in one that is larger than what is taken.
TEST_P(AbuseTest, ABillionTokensAreRefused) {
  const std::string announced = "\x12\x80\xd0\xac\xf3\x0e";  // token_ids of 4e9 bytes
  const AbusedPort& router = fleet_->ports().front();
  const std::string address = fmt::format("127.0.0.1:{}", router.port);
  const grpc::Status status = StatusOfCall(address, router.peer, kGenerate, announced);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
  const grpc::Status large =
      StatusOfCall(address, router.peer, kGenerate, std::string(16 << 20, '\x12'));
  EXPECT_EQ(large.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << large.error_message();
}

TEST_P(AbuseTest, FramesThatClaimTooMuchEndTheConnection) {
  const AbusedPort& port = fleet_->ports().back();
  ASSERT_EQ(port.protocol, PortProtocol::kKv);
  const auto frame = [](const FrameHeader& header) {
    return std::string(AsText(HeaderBytes(header)));
  };
  const std::string hello = frame({.type = FrameType::kHello, .stream = 77, .block = 1});
  const uint64_t huge = uint64_t{1} << 62;
  const std::string claims[] = {
      frame({.type = FrameType::kData, .stream = 1, .payload_bytes = 0xFFFFFFFF}),
      frame({.type = FrameType::kAnnounce, .payload_bytes = 0xFFFFFFFF}),
      frame({.type = FrameType::kCredit, .frames = huge}),
      "GET / HTTP/1.1\r\nContent-Length: 4611686018427387904\r\n\r\n" + std::string(64, 'x')};
  for (const std::string& claim : claims) {
    const double refused = fleet_->Refused(port);
    HostilePeer peer = ConnectTo(port);
    peer.Send(hello + claim);
    peer.ReceiveAll();
    EXPECT_EQ(fleet_->Refused(port), refused + 1);
  }
  // A commit of a stream that nobody reserved is answered, whatever it claims.
  HostilePeer peer = ConnectTo(port);
  peer.Send(hello + frame({.type = FrameType::kCommit,
                           .stream = 1,
                           .epoch = 1,
                           .block = 1,
                           .frames = huge,
                           .sent_bytes = huge}));
  const std::string reject("TDK1\3\0\4", 7);
  const auto is_rejected = [&reject](std::string_view bytes) {
    return bytes.find(reject) != std::string_view::npos;
  };
  EXPECT_TRUE(is_rejected(peer.ReceiveUntil(is_rejected)));
}

}  // namespace
}  // namespace tandem::abuse_requests_test
