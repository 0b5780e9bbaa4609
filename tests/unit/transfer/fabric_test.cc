#include "transfer/fabric/fabric.h"

#include <algorithm>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/registry.h"
#include "tests/support/fake_clock.h"
#include "tests/support/faulty_medium.h"
#include "tests/support/forwarding_device.h"
#include "tests/support/loopback_transport.h"
#include "tests/support/scripted_transport.h"
#include "tests/support/transport_probe.h"
#include "transfer/media/ipc/ipc_medium.h"

namespace tandem::fabric_test {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kEpoch = 7;
constexpr size_t kExtent = 4096;

// Two networks that both lead from one fabric to the other, and a transport without a peer that can
// be put before them.
class FabricTest : public testing::Test {
 protected:
  FabricPart On(const std::string& name, LoopbackNetwork& network) {
    return {.name = name, .open = [&network](FrameReceiver* receiver, auto) {
              return network.NewTransport(receiver);
            }};
  }
  // Its streams end when the test says so.
  FabricPart Scripted(const std::string& name) {
    return {.name = name,
            .open = [this](FrameReceiver*, auto) -> absl::StatusOr<std::unique_ptr<Transport>> {
              auto transport = std::make_unique<ScriptedTransport>();
              scripted_ = transport.get();
              return transport;
            }};
  }
  std::unique_ptr<Fabric> Open(const std::vector<FabricPart>& parts, FrameReceiver* receiver,
                               size_t probe_extent_bytes = 0) {
    auto fabric = Fabric::Open({.epoch = kEpoch, .probe_extent_bytes = probe_extent_bytes}, parts,
                               receiver, clock_);
    EXPECT_TRUE(fabric.ok()) << fabric.status();
    return *std::move(fabric);
  }
  void OpenBoth(size_t probe_extent_bytes = 0) {
    receiver_ = Open({On("near", near_), On("far", far_)}, &received_);
    sender_ = Open({On("near", near_), On("far", far_)}, nullptr, probe_extent_bytes);
  }
  void OpenScriptedBeforeFar() {
    receiver_ = Open({Scripted("near"), On("far", far_)}, &received_);
    sender_ = Open({Scripted("near"), On("far", far_)}, nullptr);
  }

  absl::Status OpenStream(uint64_t stream, const std::string& peer) {
    return streams_.Open(*sender_, peer, stream, kEpoch, Duration::zero(), ends_.Callback());
  }
  absl::Status Send(uint64_t stream) {
    RETURN_IF_ERROR(OpenStream(stream, receiver_->address()));
    RETURN_IF_ERROR(streams_.PostOne(*sender_, {stream, kEpoch}, {.payload = payload_}));
    return streams_.Finish(*sender_, {stream, kEpoch});
  }
  void ExpectArrives(uint64_t stream) {
    EXPECT_EQ(Send(stream), absl::OkStatus());
    EXPECT_EQ(ends_.Wait(stream), absl::OkStatus());
    EXPECT_EQ(received_.BytesOf(stream, 0, 0), payload_);
  }
  PeerLink LinkBy(const std::string& transport) {
    for (PeerLink& link : sender_->peer_links()) {
      if (link.stats.transport == transport) return link;
    }
    return {};
  }
  // Of the receiver, as routers tell of it.
  FabricPeer Peer() {
    return {.name = "decode-0", .epoch = kEpoch, .address = receiver_->address()};
  }
  // Probes run on a thread of their own; they end, or kPatience is over.
  bool WaitUntilProbed() {
    const absl::Time end = absl::Now() + kPatience;
    while (absl::Now() < end) {
      const auto links = sender_->peer_links();
      const bool probed = std::all_of(links.begin(), links.end(), [](const PeerLink& link) {
        return link.stats.probe_gigabytes_per_second > 0;
      });
      if (probed && links.size() == 2) return true;
      std::this_thread::yield();
    }
    return false;
  }

  FakeClock clock_;
  const std::vector<std::byte> payload_ = PatternBytes(kExtent, 1);
  LoopbackNetwork near_;
  LoopbackNetwork far_;
  ScriptedTransport* scripted_ = nullptr;  // the latest made
  StreamBook streams_;
  EndProbe ends_;
  ReceiverProbe received_;
  std::unique_ptr<Fabric> receiver_;
  std::unique_ptr<Fabric> sender_;
};

TEST_F(FabricTest, AStreamTakesTheFirstWay) {
  OpenBoth();
  EXPECT_THAT(receiver_->address(), testing::MatchesRegex("near:.+ far:.+"));
  EXPECT_EQ(sender_->MayReach(receiver_->address()), absl::OkStatus());
  ExpectArrives(1);
  EXPECT_TRUE(LinkBy("near").in_use);
  EXPECT_FALSE(LinkBy("far").in_use);
  EXPECT_GE(sender_->stats().bytes_sent, kExtent);
  EXPECT_EQ(sender_->links().size(), 2u);
}

TEST_F(FabricTest, WhatIsNotReachedByNatureIsNoFallback) {
  receiver_ = Open({Scripted("ring"), On("far", far_)}, &received_);
  sender_ = Open({On("near", near_), On("far", far_)}, nullptr);
  ExpectArrives(1);
  EXPECT_EQ(LinkBy("far").fallbacks, 0u);
}

// As the shared memory of another host.
TEST_F(FabricTest, AWayThatCannotBeReachedIsShownWithItsReason) {
  OpenScriptedBeforeFar();
  scripted_->FailReach(absl::UnavailableError("on another host"));
  sender_->SetPeers({Peer()});
  EXPECT_EQ(LinkBy("near").unreachable, "on another host");
  EXPECT_EQ(LinkBy("near").peer, "decode-0");
  EXPECT_EQ(LinkBy("far").unreachable, "");
  ExpectArrives(1);
  EXPECT_TRUE(LinkBy("far").in_use);
  EXPECT_EQ(LinkBy("far").fallbacks, 0u);
}

TEST_F(FabricTest, AWayThatCannotBeHadFailsTheStreamWithBothSides) {
  receiver_ = Open({On("far", far_)}, &received_);
  sender_ = Open({On("near", near_)}, nullptr);
  const absl::Status status = Send(1);
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("far: this worker has no such transport"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("--kv-transport"));
  EXPECT_TRUE(absl::IsUnavailable(sender_->MayReach(receiver_->address())));
  EXPECT_TRUE(absl::IsInvalidArgument(OpenStream(2, "nonsense")));
  EXPECT_EQ(ends_.total(), 0);
}

TEST_F(FabricTest, ARefusedOpeningTakesTheNextWayAtOnce) {
  OpenScriptedBeforeFar();
  scripted_->FailOpen(absl::UnavailableError("no room for a ring"));
  ExpectArrives(1);
  ExpectArrives(2);
  EXPECT_EQ(LinkBy("far").fallbacks, 1u);  // one change, however many streams
  EXPECT_EQ(LinkBy("far").fallback_reason, "no room for a ring");
  EXPECT_TRUE(LinkBy("far").in_use);

  scripted_->FailOpen(absl::OkStatus());
  clock_.Advance(LinkSelector::kFirstBackOff);
  EXPECT_EQ(Send(3), absl::OkStatus());  // the trial
  ExpectArrives(4);                      // meanwhile
  scripted_->End(3, absl::OkStatus());
  EXPECT_EQ(Send(5), absl::OkStatus());
  EXPECT_EQ(scripted_->frames().back().stream, 5u);
  scripted_->End(5, absl::OkStatus());
}

TEST_F(FabricTest, AStreamThatEndsUnavailableMovesTheNextOne) {
  OpenScriptedBeforeFar();
  EXPECT_EQ(Send(1), absl::OkStatus());
  scripted_->End(1, absl::UnavailableError("connection refused"));
  EXPECT_TRUE(absl::IsUnavailable(ends_.Wait(1)));
  ExpectArrives(2);
  EXPECT_EQ(LinkBy("far").fallback_reason, "connection refused");
}

// Every payload on the near way has a wrong hash, however often it is sent.
TEST_F(FabricTest, AWayThatDamagesPayloadsIsLeftForAnother) {
  const FabricPart damaging = {
      .name = "near", .open = [this](FrameReceiver* receiver, auto) {
        return NewFramedTransport(
            {},
            NewFaultyMedium(near_.NewMedium(),
                            [](const ObservedFrame& frame) {
                              const bool hit = frame.header.type == FrameType::kData;
                              return FrameAction{.kind = hit ? FrameAction::Kind::kFlipPayload
                                                             : FrameAction::Kind::kPass};
                            }),
            receiver);
      }};
  receiver_ = Open({damaging, On("far", far_)}, &received_);
  sender_ = Open({On("near", near_), On("far", far_)}, nullptr);
  EXPECT_EQ(Send(1), absl::OkStatus());
  EXPECT_TRUE(absl::IsDataLoss(ends_.Wait(1)));
  ExpectArrives(2);
  EXPECT_TRUE(LinkBy("far").in_use);
  EXPECT_EQ(LinkBy("far").fallbacks, 1u);
  EXPECT_THAT(LinkBy("far").fallback_reason, HasSubstr("misses 1 extents"));
  EXPECT_EQ(LinkBy("near").failure, LinkBy("far").fallback_reason);
  sender_.reset();
  receiver_.reset();
}

// The near way takes everything and brings nothing. Whether the stream waits for the end of it or
// is aborted before, by whoever waits for its KV, the next one takes another way.
TEST_F(FabricTest, AWayThatSwallowsEverythingIsLeftForAnother) {
  const auto swallowing = [this](std::chrono::milliseconds answer_timeout) {
    return FabricPart{.name = "near",
                      .open = [this, answer_timeout](FrameReceiver* receiver, auto) {
                        return NewFramedTransport(
                            {.answer_timeout = answer_timeout},
                            NewFaultyMedium(near_.NewMedium(),
                                            [](const ObservedFrame&) {
                                              return FrameAction{.kind = FrameAction::Kind::kDrop};
                                            }),
                            receiver);
                      }};
  };
  for (const bool aborted : {false, true}) {
    const std::chrono::milliseconds timeout(aborted ? 1000 : 50);
    receiver_ = Open({swallowing(timeout), On("far", far_)}, &received_);
    sender_ = Open({swallowing(timeout), On("far", far_)}, nullptr);
    const uint64_t stream = aborted ? 3 : 1;
    EXPECT_EQ(Send(stream), absl::OkStatus());
    if (aborted) {
      const auto enough = std::chrono::steady_clock::now() + timeout / 4;
      while (std::chrono::steady_clock::now() < enough) std::this_thread::yield();
      streams_.Abort(*sender_, {stream, kEpoch});
    }
    EXPECT_TRUE(absl::IsUnavailable(ends_.Wait(stream)));
    ExpectArrives(stream + 1);
    EXPECT_EQ(LinkBy("far").fallbacks, 1u);
    EXPECT_THAT(LinkBy("far").fallback_reason, HasSubstr("answered nothing"));
    EXPECT_EQ(LinkBy("near").failure, LinkBy("far").fallback_reason);
    sender_.reset();
    receiver_.reset();
  }
}

TEST_F(FabricTest, WhatTheReceiverRefusesIsNoFaultOfTheWay) {
  OpenScriptedBeforeFar();
  EXPECT_EQ(Send(1), absl::OkStatus());
  scripted_->End(1, absl::NotFoundError("no such reservation"));
  EXPECT_EQ(Send(2), absl::OkStatus());
  EXPECT_EQ(scripted_->frames().back().stream, 2u);
  EXPECT_EQ(LinkBy("near").fallbacks, 0u);
  streams_.Abort(*sender_, {2, kEpoch});
  EXPECT_TRUE(absl::IsCancelled(ends_.Wait(2)));
  EXPECT_EQ(scripted_->num_aborted(), 1);
  streams_.Abort(*sender_, {2, kEpoch});  // again: it has ended
  EXPECT_EQ(scripted_->num_aborted(), 1);
}

TEST_F(FabricTest, AStreamIsOpenOnceAndEndsWithTheFabric) {
  OpenBoth();
  EXPECT_EQ(OpenStream(1, receiver_->address()), absl::OkStatus());
  EXPECT_TRUE(absl::IsInternal(OpenStream(1, receiver_->address())));
  sender_.reset();
  EXPECT_EQ(ends_.count(1), 1);
}

TEST_F(FabricTest, PeersAreProbedOnEveryWayAndNobodyElseHearsOfIt) {
  const SteadyClock clock;
  receiver_ = Open({On("near", near_), On("far", far_)}, &received_);
  auto fabric = Fabric::Open({.epoch = kEpoch + 1, .probe_extent_bytes = kExtent},
                             {On("near", near_), On("far", far_)}, nullptr, clock);
  ASSERT_TRUE(fabric.ok());
  sender_ = *std::move(fabric);
  sender_->SetPeers({Peer()});
  ASSERT_TRUE(WaitUntilProbed());
  EXPECT_EQ(LinkBy("near").peer, "decode-0");
  EXPECT_GT(LinkBy("near").stats.probe_setup, Duration(0));
  EXPECT_TRUE(received_.calls().empty());
  EXPECT_EQ(ends_.total(), 0);
  EXPECT_LT(sender_->stats().bytes_sent, 1u << 20);  // what is left are greetings and commits
  ExpectArrives(1);
  sender_->SetPeers({});
  EXPECT_TRUE(sender_->peer_links().empty());
}

TEST_F(FabricTest, CloseWhileProbing) {
  OpenBoth(kExtent);
  sender_->SetPeers({Peer()});
  sender_.reset();
}

// Takes no memory of another process, as a GPU that does not reach the other's.
class AloneDevice final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  absl::StatusOr<DeviceBuffer> OpenShared(const MemoryHandle&) override {
    return FailedPrecondition("no way leads from one GPU to the other");
  }
};

// All would go wrong again over the same way: they are sent over another one.
TEST_F(FabricTest, PeersWhoseDevicesDoNotReachOneAnotherTakeAnotherWay) {
  const Backend cpu = *OpenBackend("cpu", {.num_threads = 1});
  AloneDevice alone(*cpu.device);
  const DeviceBuffer pool = *cpu.device->AllocateShared(kExtent);
  std::ranges::copy(payload_, pool.data());
  const auto ipc = [](Device& device, std::vector<std::span<const std::byte>> shared) {
    return FabricPart{
        .name = "ipc",
        .open = [&device, shared](FrameReceiver* receiver,
                                  auto) -> absl::StatusOr<std::unique_ptr<Transport>> {
          return NewFramedTransport(
              {.device = &device}, *OpenIpcMedium({.device = &device, .shared = shared}), receiver);
        }};
  };
  receiver_ = Open({ipc(alone, {}), On("far", far_)}, &received_);
  sender_ = Open({ipc(*cpu.device, {pool.bytes()}), On("far", far_)}, nullptr);
  const auto send = [&](uint64_t stream) {
    EXPECT_EQ(OpenStream(stream, receiver_->address()), absl::OkStatus());
    EXPECT_EQ(streams_.PostOne(*sender_, {stream, kEpoch}, {.payload = pool.bytes()}),
              absl::OkStatus());
    EXPECT_EQ(streams_.Finish(*sender_, {stream, kEpoch}), absl::OkStatus());
    return ends_.Wait(stream);
  };
  const absl::Status refused = send(1);
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("its log says why"));
  EXPECT_EQ(send(2), absl::OkStatus());
  EXPECT_EQ(received_.BytesOf(2, 0, 0), payload_);
  EXPECT_EQ(LinkBy("far").fallbacks, 1u);
  sender_.reset();
  receiver_.reset();
}

}  // namespace
}  // namespace tandem::fabric_test
