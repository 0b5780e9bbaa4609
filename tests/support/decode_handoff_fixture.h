#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/call_site.h"
#include "tests/support/fake_clock.h"
#include "tests/support/recording_sink.h"
#include "tests/support/scripted_transport.h"
#include "tests/support/test_engine.h"

namespace tandem {

inline constexpr int32_t kVocabSize = 288;
inline constexpr int32_t kPromptTokens = 20;
inline constexpr int32_t kMaxTokens = 8;
inline constexpr Duration kLease = std::chrono::seconds(10);
inline constexpr uint64_t kNobody = 1u << 30;

// The KV of one prompt with its first token, as a prefill engine made it, and the whole answer.
struct Prefilled {
  std::vector<RecordedFrame> frames;
  int32_t first_token = 0;
  std::vector<SampledToken> first_tokens;
  std::vector<int32_t> answer;
};

inline EngineRequest TheRequest() {
  return Greedy(1, RandomPrompt(1, kPromptTokens, kVocabSize), kMaxTokens);
}

inline const Prefilled& ThePrefill() {
  static const Prefilled prefilled = [] {
    Prefilled result;
    TestEngine prefill({.role = Role::kPrefill});
    auto transport = std::make_unique<ScriptedTransport>();
    ScriptedTransport* const wire = transport.get();
    prefill.Connect(std::move(transport));
    Recording first;
    prefill->SubmitPrefill(TheRequest(), {.reservation = ReservationId(1)}, first.NewSink());
    wire->AwaitCommit(1);
    result.frames = wire->frames();
    result.first_tokens = first.first_tokens();
    result.first_token = result.first_tokens.front().token_id;
    wire->End(1, absl::OkStatus());
    EXPECT_TRUE(first.AwaitFinish().status.ok());

    TestEngine unified({});
    Recording whole;
    unified->Submit(TheRequest(), whole.NewSink());
    EXPECT_TRUE(whole.AwaitFinish().status.ok());
    result.answer = whole.token_ids();
    return result;
  }();
  return prefilled;
}

// A decode engine with one reservation, and the part of a transport and a router that feed it.
class DecodeHandoffTest : public testing::Test {
 protected:
  void Start(TestEngineSetup setup = {}) {
    setup.role = Role::kDecode;
    setup.clock = &clock_;
    setup.reservation_lease = kLease;
    engine_ = std::make_unique<TestEngine>(setup);
    const auto reservation = engine_->ReserveFor(TheRequest());
    ASSERT_TRUE(reservation.ok()) << reservation.status();
    reservation_ = *reservation;
  }

  FrameReceiver& receiver() { return *(*engine_)->frame_receiver(); }

  // What a transport's thread does.
  FrameHeader HeaderOf(const RecordedFrame& frame) const {
    return {.type = FrameType::kData,
            .stream = reservation_.id.value(),
            .epoch = reservation_.epoch,
            .layer = frame.layer,
            .block = frame.block,
            .payload_bytes = static_cast<uint32_t>(frame.payload.size())};
  }
  absl::Status Begin(const RecordedFrame& frame) {
    return receiver().Prepare(HeaderOf(frame)).status();
  }
  absl::Status Land(const RecordedFrame& frame) {
    const auto place = receiver().Prepare(HeaderOf(frame));
    if (!place.ok()) return place.status();
    std::copy(frame.payload.begin(), frame.payload.end(), place->begin());
    receiver().Landed(HeaderOf(frame), absl::OkStatus());
    return absl::OkStatus();
  }
  void LandAll() {
    for (const RecordedFrame& frame : ThePrefill().frames) EXPECT_TRUE(Land(frame).ok());
  }
  CommitAnswer Commit(uint64_t frames) {
    return receiver().Commit({.type = FrameType::kCommit,
                              .stream = reservation_.id.value(),
                              .epoch = reservation_.epoch,
                              .frames = frames});
  }
  // What all is not yet there.
  std::vector<MissingExtent> Missing() {
    const CommitAnswer answer = Commit(ThePrefill().frames.size());
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    return answer.missing;
  }
  // OK when it is acknowledged.
  absl::Status CommitAll() {
    const CommitAnswer answer = Commit(ThePrefill().frames.size());
    if (!answer.status.ok() || answer.missing.empty()) return answer.status;
    return absl::NotFoundError("extents are missing");
  }
  absl::Status Renew() { return receiver().Renewed(reservation_.id.value(), reservation_.epoch); }

  void Decode(EngineRequest request, ReservationId reservation) {
    (*engine_)->SubmitDecode({.request = std::move(request),
                              .reservation = reservation,
                              .first_tokens = ThePrefill().first_tokens},
                             recording_.NewSink());
  }
  void Decode() { Decode(TheRequest(), reservation_.id); }

  // The engine thread has seen all that went before, and looked at its clock.
  void Settle() { engine_->Settle(); }
  void Nudge() { (*engine_)->Cancel(RequestId(kNobody), absl::OkStatus()); }

  void ExpectEnd(absl::StatusCode code, CallSite line = CallSite::Current()) {
    EXPECT_EQ(recording_.AwaitFinish(line).status.code(), code) << recording_.AwaitFinish().status;
    EXPECT_EQ(recording_.num_finishes(), 1);
    Settle();
    EXPECT_TRUE(engine_->AtRest());
    if (code == absl::StatusCode::kOk) return;
    EXPECT_TRUE(recording_.token_ids().empty()) << "decoded from KV that did not arrive";
  }
  void ExpectTheAnswer(CallSite line = CallSite::Current()) {
    ExpectEnd(absl::StatusCode::kOk, line);
    std::vector<int32_t> answer = {ThePrefill().first_token};
    const std::vector<int32_t> rest = recording_.token_ids();
    answer.insert(answer.end(), rest.begin(), rest.end());
    EXPECT_EQ(answer, ThePrefill().answer);
  }
  void ExpectReleased() {
    Settle();
    EXPECT_TRUE(engine_->AtRest());
  }

  FakeClock clock_;
  Recording recording_;
  std::unique_ptr<TestEngine> engine_;
  Reservation reservation_;
};

}  // namespace tandem
