// How requests of a prefill engine end whose hand-off does not: a stream that does not open or take
// frames, a cancel, a deadline, a shutdown.

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "tests/support/scripted_transport.h"
#include "tests/support/test_engine.h"
#include "tests/unit/engine/prefill_handoff_fixture.h"

namespace tandem::prefill_endings_test {
namespace {

using absl::StatusCode;
using prefill_handoff::kStream;
using prefill_handoff::kVocabSize;
using prefill_handoff::PrefillHandoffTest;

constexpr uint64_t kNobody = 1u << 30;

TEST_F(PrefillHandoffTest, AStreamThatDoesNotOpenEndsIt) {
  Start();
  wire_->FailOpen(absl::UnavailableError("shut down"));
  Prefill(40);
  ExpectEnd(StatusCode::kUnavailable);
  EXPECT_EQ(wire_->num_aborted(), 0);
}

TEST_F(PrefillHandoffTest, AFullQueueOfFramesEndsTheRequest) {
  Start();
  wire_->FailPost(absl::ResourceExhaustedError("too many frames"));
  Prefill(40);
  ExpectEnd(StatusCode::kResourceExhausted);
  EXPECT_EQ(wire_->num_aborted(), 1);
}

TEST_F(PrefillHandoffTest, AFailedPostOfAnEarlyChunkEndsTheRequest) {
  Start({.least_post_bytes = 1, .scheduler = {.max_prefill_chunk = 8}});
  wire_->FailPost(absl::ResourceExhaustedError("too many frames"));
  Prefill(40);
  ExpectEnd(StatusCode::kResourceExhausted);
  EXPECT_EQ(wire_->num_aborted(), 1);
}

TEST_F(PrefillHandoffTest, ACancelWhileComputingAborts) {
  Start({.scheduler = {.max_prefill_chunk = 8}});
  engine_->gate().Allow(2);
  Prefill(40);
  engine_->gate().AwaitHeld();
  (*engine_)->Cancel(RequestId(1), absl::OkStatus());
  engine_->gate().Open();
  ExpectEnd(StatusCode::kCancelled);
  EXPECT_EQ(wire_->num_aborted(), 1);
}

TEST_F(PrefillHandoffTest, ACancelWhileTransferringAborts) {
  Start();
  Prefill(40);
  wire_->AwaitCommit(kStream);
  (*engine_)->Cancel(RequestId(1), absl::OkStatus());
  ExpectEnd(StatusCode::kCancelled);
  EXPECT_EQ(wire_->num_aborted(), 1);
}

TEST_F(PrefillHandoffTest, ADeadlineWhileTransferringAborts) {
  Start({.clock = &clock_});
  EngineRequest request = Greedy(1, RandomPrompt(1, 40, kVocabSize), 10);
  request.deadline = clock_.Now() + std::chrono::seconds(1);
  Prefill(std::move(request));
  wire_->AwaitCommit(kStream);
  clock_.Advance(std::chrono::seconds(1));
  (*engine_)->Cancel(RequestId(kNobody), absl::OkStatus());  // to look at its clock
  ExpectEnd(StatusCode::kDeadlineExceeded);
  EXPECT_EQ(wire_->num_aborted(), 1);
}

TEST_F(PrefillHandoffTest, AnIdleEngineWakesForADeadline) {
  Start();
  EngineRequest request = Greedy(1, RandomPrompt(1, 40, kVocabSize), 10);
  request.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  Prefill(std::move(request));
  ExpectEnd(StatusCode::kDeadlineExceeded);
}

TEST_F(PrefillHandoffTest, AShutdownWhileTransferringAborts) {
  Start();
  Prefill(40);
  wire_->AwaitCommit(kStream);
  (*engine_)->Shutdown(TimePoint::min());
  ExpectEnd(StatusCode::kUnavailable);
  EXPECT_EQ(wire_->num_aborted(), 1);
}

TEST_F(PrefillHandoffTest, AShutdownWithTimeWaitsForThePeer) {
  Start();
  Prefill(40);
  wire_->AwaitCommit(kStream);
  wire_->End(kStream, absl::OkStatus());
  (*engine_)->Shutdown(kNoDeadline);
  ExpectEnd(StatusCode::kOk);
}

TEST_F(PrefillHandoffTest, WithoutATransportThereIsNoHandoff) {
  engine_ = std::make_unique<TestEngine>(TestEngineSetup{.role = Role::kPrefill});
  Prefill(10);
  ExpectEnd(StatusCode::kFailedPrecondition);
}

TEST_F(PrefillHandoffTest, AUnifiedRequestIsRefused) {
  Start();
  (*engine_)->Submit(Greedy(1, {1, 2}, 3), recording_.NewSink());
  ExpectEnd(StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace tandem::prefill_endings_test
