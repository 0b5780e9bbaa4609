// A request continues only where its client gets the tokens that it would have got anyway.

#include "tests/support/resume_fixture.h"

namespace tandem::resume_numerics_test {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class NumericsTest : public ResumeFixture {
 protected:
  // As in its first life, but for what the test changes.
  v1::RegisterRequest SecondLife(const std::string& name, v1::WorkerRole role) {
    return Registration(name, role, 2);
  }
  // Without other workers a worker may return with other weights or another KV type.
  void LeaveOnly(const std::string& name) {
    const auto view = cluster_.View();
    for (const WorkerView& worker : view->workers) {
      if (worker.id.name == name) continue;
      cluster_.Deregister(worker.id.name, worker.id.incarnation);
      cluster_.Deregister(worker.id.name, worker.id.incarnation);
    }
    loop_.RunReady();
  }
  // u0 has sent two of four tokens and is lost.
  void LoseUnifiedHalfWay() {
    Join("u0", kUnifiedRole);
    LeaveOnly("u0");
    Submit(Ask(v1::ROUTE_UNIFIED));
    Say("generate u0", {10, 11});
    LoseCall("generate u0");
    ASSERT_THAT(workers_.Open(), IsEmpty());
  }
  // The request does not continue at that worker, however long it waits, and its error says why.
  void ExpectGivenUp(const v1::RegisterRequest& other, const std::vector<std::string>& said) {
    LoseUnifiedHalfWay();
    Join(other);
    EXPECT_THAT(workers_.Open(), IsEmpty()) << "tokens of two kinds in one answer";
    EXPECT_FALSE(stream_.end.has_value()) << "the right one may return";
    for (int i = 0; i < 5; ++i) {
      clock_.Advance(seconds(2));
      v1::HeartbeatRequest beat;
      beat.set_name(other.name());
      beat.set_incarnation(other.incarnation());
      ASSERT_TRUE(cluster_.Heartbeat(beat).ok());
      loop_.RunReady();
    }
    ExpectFailed(absl::StatusCode::kUnavailable, "unified worker u0 (u0:1) was lost");
    for (const std::string& part : said) {
      EXPECT_THAT(std::string(stream_.end->message()), HasSubstr(part));
    }
    EXPECT_THAT(stream_.tokens, ElementsAre(10, 11));
    EXPECT_EQ(router_.Status().resumes().gave_up(), 1u);
  }
};

TEST_F(NumericsTest, AWorkerThatReturnsWithOtherWeightsDoesNotContinue) {
  v1::RegisterRequest other = SecondLife("u0", kUnifiedRole);
  other.set_model_fingerprint(0xabc);
  ExpectGivenUp(other, {"u0 has model 0000000000000abc", "begun by model 0000000000000000"});
}

TEST_F(NumericsTest, AWorkerThatReturnsWithAnotherKvTypeDoesNotContinue) {
  v1::RegisterRequest other = SecondLife("u0", kUnifiedRole);
  other.mutable_layout()->set_dtype("f32");
  ExpectGivenUp(other, {"KV of f32", "KV of bf16"});
}

TEST_F(NumericsTest, AWorkerThatReturnsOnAnotherKindOfDeviceDoesNotContinue) {
  v1::RegisterRequest other = SecondLife("u0", kUnifiedRole);
  other.set_device("cuda:0");
  ExpectGivenUp(other, {"on cuda", "on cpu"});
}

TEST_F(NumericsTest, AWorkerThatReturnsAndRoundsActivationsDoesNotContinue) {
  v1::RegisterRequest other = SecondLife("u0", kUnifiedRole);
  other.set_device("cpu-bf16");
  ExpectGivenUp(other, {"on cpu-bf16", "on cpu"});
}

TEST_F(NumericsTest, TheRequestWaitsForAWorkerWithTheSameNumerics) {
  LoseUnifiedHalfWay();
  v1::RegisterRequest other = SecondLife("u0", kUnifiedRole);
  other.set_model_fingerprint(0xabc);
  Join(other);
  cluster_.Deregister("u0", 2);  // it leaves, so that one with the old weights may come
  Join("u1", kUnifiedRole);
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u1"));
  EXPECT_THAT(SoFar(), ElementsAre(10, 11));
  Say("generate u1", {12, 13});
  Finish("generate u1", kLength);
  ExpectTheAnswer(1);
}

TEST_F(NumericsTest, ARequestWithoutEmittedTokensMayBeginAnywhere) {
  Join("u0", kUnifiedRole);
  LeaveOnly("u0");
  Submit(Ask(v1::ROUTE_UNIFIED));
  LoseCall("generate u0");
  v1::RegisterRequest other = SecondLife("u0", kUnifiedRole);
  other.set_model_fingerprint(0xabc);
  Join(other);
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u0"));
  Say("generate u0", {10, 11, 12, 13});
  Finish("generate u0", kLength);
  ExpectTheAnswer(1);
}

// Prompts are computed with bf16 and decoded with f32, exactly converted: a unified worker would
// have to be like both.
TEST_F(NumericsTest, PromptAndOutputAreEachComparedWithTheirOwnNumerics) {
  cluster_.Deregister("d0", 1);
  cluster_.Deregister("d0", 1);
  for (const char* name : {"d0", "d1"}) {
    v1::RegisterRequest wide = Registration(name, kDecodeRole, 2);
    wide.mutable_layout()->set_dtype("f32");
    Join(wide);
  }
  Join("p1", kPrefillRole);
  SubmitAndPrefill();
  LoseCall("decode d0");
  EXPECT_THAT(workers_.Open(), ElementsAre("reserve d1"));
  ContinueAt("p0", "d1", 6, {11, 12, 13});
  ExpectTheAnswer(1);
}

TEST_F(NumericsTest, CallsNameTheIncarnationOfTheWorker) {
  Join("u0", kUnifiedRole, 7);
  Submit(Ask(v1::ROUTE_UNIFIED));
  EXPECT_EQ(workers_.streams.back()->epoch, 7u);
  Join("d0", kDecodeRole, 8);
  Join("p0", kPrefillRole, 9);
  RecordingStream other;
  ASSERT_TRUE(router_.Submit(Ask(), kNoDeadline, other).ok());
  loop_.RunReady();
  EXPECT_EQ(workers_.reservations.back()->request.epoch(), 8u);
  Reserved(5);
  EXPECT_EQ(workers_.streams.back()->epoch, 9u);
}

TEST_F(NumericsTest, AnAnswerOfAnotherIncarnationIsALoss) {
  Join("u0", kUnifiedRole);
  Join("u1", kUnifiedRole);
  Submit(Ask(v1::ROUTE_UNIFIED));
  End("generate u0", NotFound("the call is meant for another process of this worker's name"),
      kWorker);
  EXPECT_THAT(workers_.Open(), ElementsAre("generate u1"));
  Say("generate u1", {10, 11, 12, 13});
  Finish("generate u1", kLength);
  ExpectTheAnswer(1);
}

}  // namespace
}  // namespace tandem::resume_numerics_test
