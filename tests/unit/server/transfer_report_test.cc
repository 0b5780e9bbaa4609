#include "server/assembly/transfer_report.h"

#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"
#include "tests/support/loopback_transport.h"

namespace tandem::transfer_report_test {
namespace {

TEST(TransferReportTest, ALinkIsToldWhole) {
  const PeerLink link = {.peer = "decode-0",
                         .stats = {.peer = "127.0.0.1:7",
                                   .transport = "tcp",
                                   .probe_gigabytes_per_second = 2.5,
                                   .best_gigabytes_per_second = 3.5,
                                   .probe_setup = std::chrono::microseconds(120),
                                   .probe_operation = std::chrono::nanoseconds(1500),
                                   .gigabytes_per_second = 1.25,
                                   .fastest_gigabytes_per_second = 1.75,
                                   .payload_bytes = 1000,
                                   .resent_frames = 3,
                                   .bytes_in_flight = 77},
                         .in_use = true,
                         .fallbacks = 2,
                         .fallback_reason = "refused",
                         .failure = "cut",
                         .probe_failure = "too slow",
                         .unreachable = "another host"};
  const v1::LinkStatus status = ToProto(link);
  EXPECT_EQ(status.peer(), "decode-0");
  EXPECT_EQ(status.transport(), "tcp");
  EXPECT_DOUBLE_EQ(status.probe_gb_per_s(), 2.5);
  EXPECT_DOUBLE_EQ(status.gb_per_s(), 1.25);
  EXPECT_DOUBLE_EQ(status.setup_us(), 120);
  EXPECT_DOUBLE_EQ(status.operation_us(), 1.5);
  EXPECT_EQ(status.bytes(), 1000u);
  EXPECT_EQ(status.bytes_in_flight(), 77u);
  EXPECT_EQ(status.resent_frames(), 3u);
  EXPECT_EQ(status.fallbacks(), 2u);
  EXPECT_EQ(status.fallback_reason(), "refused");
  EXPECT_TRUE(status.in_use());
  EXPECT_EQ(status.failure(), "cut");
  EXPECT_DOUBLE_EQ(status.best_probe_gb_per_s(), 3.5);
  EXPECT_DOUBLE_EQ(status.fastest_gb_per_s(), 1.75);
  EXPECT_EQ(status.probe_failure(), "too slow");
  EXPECT_EQ(status.unreachable(), "another host");
}

TEST(TransferReportTest, ALoadHasTheLinksToNamedPeersAndTheMemory) {
  FakeClock clock;
  LoopbackNetwork network;
  const std::vector<FabricPart> parts = {
      {.name = "tcp",
       .open = [&network](FrameReceiver* to, auto) { return network.NewTransport(to); }}};
  auto there = Fabric::Open({.epoch = 3}, parts, nullptr, clock);
  auto here = Fabric::Open({.epoch = 4}, parts, nullptr, clock);
  ASSERT_TRUE(there.ok() && here.ok());
  (*here)->SetPeers({{.name = "decode-0", .epoch = 3, .address = (*there)->address()}});
  const auto kv_ratio_to = [&](const std::string& address) {
    EXPECT_EQ(address, (*there)->address());
    return 1.5;
  };
  v1::WorkerLoad load;
  AddTransfers(**here, kv_ratio_to, load);
  ASSERT_EQ(load.links_size(), 1);
  EXPECT_EQ(load.links(0).kv_ratio(), 0) << "no stream took it yet";
  const auto stream = (*here)->OpenStream((*there)->address(), 9, 3, {},
                                          [](uint64_t, uint64_t, const absl::Status&) {});
  ASSERT_TRUE(stream.ok()) << stream.status();
  v1::WorkerLoad later;
  AddTransfers(**here, kv_ratio_to, later);
  EXPECT_EQ(later.links(0).kv_ratio(), 1.5);
  EXPECT_EQ(load.links(0).peer(), "decode-0");
  EXPECT_EQ(load.handoffs().buffer_bytes(), (*here)->stats().buffer_bytes);
  EXPECT_GT(load.handoffs().buffer_bytes(), 0u);
}

TEST(TransferReportTest, BytesThatAreNoFrameCountAsUnauthenticated) {
  v1::HandoffUse handoffs;
  AddRefused({.malformed = 1, .corrupted = 2, .stale = 4, .unauthenticated = 8, .closed = 16},
             handoffs);
  EXPECT_EQ(handoffs.corrupted_frames(), 2u);
  EXPECT_EQ(handoffs.stale_frames(), 4u);
  EXPECT_EQ(handoffs.unauthenticated_frames(), 9u);
  EXPECT_EQ(handoffs.connections_closed(), 16u);
}

TEST(TransferReportTest, WhatIsLeftOutIsALinkToNobody) {
  std::vector<LeftOut> left_out;
  LeaveOut("nccl", absl::UnavailableError("no such library"), left_out);
  v1::WorkerLoad load;
  AddLeftOut(left_out, load);
  ASSERT_EQ(load.links_size(), 1);
  EXPECT_EQ(load.links(0).peer(), "");
  EXPECT_EQ(load.links(0).transport(), "nccl");
  EXPECT_EQ(load.links(0).failure(), "UNAVAILABLE: no such library");
}

}  // namespace
}  // namespace tandem::transfer_report_test
