#include "bench/serving/grpc_backend.h"

#include <atomic>
#include <string>

#include "bench/serving/runner.h"
#include "bench/serving/summary.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/scripted_inference.h"

namespace tandem::loadgen::grpc_backend_test {
namespace {

using ::testing::HasSubstr;
using Writer = ScriptedInference::Writer;

constexpr int32_t kPrompt = 6;
constexpr int32_t kOutput = 4;

Schedule OneRequest() {
  ScheduledRequest request;
  request.prompt = {{1, 2}, {2, kPrompt - 2}};
  request.output_tokens = kOutput;
  return {.requests = {request}};
}

// What comes of one request that a server answers by the script.
RequestRecord Ask(ScriptedInference::Script script, GrpcBackendOptions options = {},
                  Schedule schedule = OneRequest()) {
  ScriptedInference server(std::move(script));
  options.server = server.address();
  const auto backend = NewGrpcBackend(options);
  const auto info = backend->Connect(Duration::zero());
  EXPECT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->model, "script");
  EXPECT_EQ(info->max_context_tokens, ScriptedInference::kMaxContextTokens);
  RunCounts counts;
  return Run(schedule, {}, *backend, counts).records[0];
}

grpc::Status WholeAnswer(const v1::GenerateRequest& request, Writer& writer) {
  ScriptedInference::WriteTokens(writer, 1);
  ScriptedInference::WriteTokens(writer, request.max_tokens() - 1);
  v1::Stages stages;
  stages.set_ttft_ms(5);
  stages.set_queue_ms(2);
  stages.set_prefill_ms(3);
  ScriptedInference::WriteFinish(writer, v1::FINISH_REASON_LENGTH, stages);
  ScriptedInference::WriteSummary(writer, request.token_ids().ids_size(), request.max_tokens());
  return grpc::Status::OK;
}

TEST(GrpcBackendTest, AWholeAnswerIsCompleteWithItsStages) {
  const RequestRecord record = Ask(WholeAnswer);
  EXPECT_EQ(Judge(record, true), Verdict::kComplete) << WhyNotComplete(record, true);
  ASSERT_EQ(record.chunks.size(), 2u);
  EXPECT_EQ(record.chunks[0].tokens, 1);
  EXPECT_EQ(record.chunks[1].tokens, kOutput - 1);
  EXPECT_LE(record.chunks[0].at, record.chunks[1].at);
  EXPECT_LE(record.chunks[1].at, record.ended);
  EXPECT_EQ(record.end.prompt_tokens, kPrompt);
  EXPECT_EQ(record.end.route, "unified");
  ASSERT_TRUE(record.end.stages);
  EXPECT_EQ(record.end.stages->queue, 2);
  EXPECT_EQ(record.end.stages->prefill, 3);
  EXPECT_EQ(record.end.stages->ttft, 5);
  EXPECT_FALSE(record.end.predicted);
}

// A whole answer whose finish carries `predicted`.
ScriptedInference::Script Predicting(const v1::Prediction& predicted) {
  return [predicted](const v1::GenerateRequest& request, Writer& writer) {
    ScriptedInference::WriteTokens(writer, request.max_tokens());
    v1::GenerateResponse event;
    event.mutable_finish()->set_reason(v1::FINISH_REASON_LENGTH);
    event.mutable_finish()->set_completion_tokens(request.max_tokens());
    *event.mutable_finish()->mutable_predicted() = predicted;
    writer.Write(event);
    ScriptedInference::WriteSummary(writer, request.token_ids().ids_size(), request.max_tokens());
    return grpc::Status::OK;
  };
}

TEST(GrpcBackendTest, APredictionIsScaledToTheTokensThatCame) {
  v1::Prediction predicted;
  predicted.set_ttft_ms(10);
  predicted.set_transfer_ms(6);
  predicted.set_decode_ms(40);
  predicted.set_output_tokens(5);  // and kOutput came: 3 after the first instead of 4
  const RequestRecord record = Ask(Predicting(predicted));
  ASSERT_TRUE(record.end.predicted);
  EXPECT_EQ(record.end.predicted->ttft, 10);
  EXPECT_EQ(record.end.predicted->tpot, 12);
  EXPECT_EQ(record.end.predicted->e2e, 46);
  predicted.set_output_tokens(1);
  const RequestRecord no_decode = Ask(Predicting(predicted));
  ASSERT_TRUE(no_decode.end.predicted);
  EXPECT_EQ(no_decode.end.predicted->ttft, 10);
  EXPECT_EQ(no_decode.end.predicted->tpot, std::nullopt);
  EXPECT_EQ(no_decode.end.predicted->e2e, std::nullopt);
}

TEST(GrpcBackendTest, TheRequestAsksForWhatTheScheduleSays) {
  v1::GenerateRequest asked;
  Ask(
      [&asked](const v1::GenerateRequest& request, Writer& writer) {
        asked = request;
        return WholeAnswer(request, writer);
      },
      {.route = "disaggregated",
       .request = {.ignore_eos = false, .temperature = 0.5},
       .objectives = {.ttft = 500, .tpot = 20}});
  EXPECT_EQ(asked.token_ids().ids_size(), kPrompt);
  EXPECT_EQ(asked.max_tokens(), kOutput);
  EXPECT_EQ(asked.route(), v1::ROUTE_DISAGGREGATED);
  EXPECT_FALSE(asked.ignore_eos());
  EXPECT_EQ(asked.sampling().temperature(), 0.5);
  EXPECT_EQ(asked.request_id(), "bench-0");
  EXPECT_EQ(asked.ttft_slo_ms(), 500);
  EXPECT_EQ(asked.tpot_slo_ms(), 20);
}

TEST(GrpcBackendTest, ARequestWithoutObjectivesLeavesThemToTheRouter) {
  v1::GenerateRequest asked;
  Ask([&asked](const v1::GenerateRequest& request, Writer& writer) {
    asked = request;
    return WholeAnswer(request, writer);
  });
  EXPECT_FALSE(asked.has_ttft_slo_ms());
  EXPECT_FALSE(asked.has_tpot_slo_ms());
}

TEST(GrpcBackendTest, AStreamThatIsCutOffIsTruncatedAlthoughItsStatusIsOk) {
  const RequestRecord cut = Ask([](const v1::GenerateRequest&, Writer& writer) {
    ScriptedInference::WriteTokens(writer, kOutput);
    return grpc::Status::OK;
  });
  EXPECT_EQ(Judge(cut, true), Verdict::kTruncated);
  const RequestRecord no_summary = Ask([](const v1::GenerateRequest&, Writer& writer) {
    ScriptedInference::WriteTokens(writer, kOutput);
    ScriptedInference::WriteFinish(writer, v1::FINISH_REASON_LENGTH);
    return grpc::Status::OK;
  });
  EXPECT_EQ(Judge(no_summary, true), Verdict::kTruncated);
}

TEST(GrpcBackendTest, AStreamThatFailsAfterItsTokensHasFailed) {
  const RequestRecord record = Ask([](const v1::GenerateRequest& request, Writer& writer) {
    WholeAnswer(request, writer);
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the worker is gone");
  });
  EXPECT_EQ(Judge(record, true), Verdict::kFailed);
  EXPECT_THAT(WhyNotComplete(record, true), HasSubstr("the worker is gone"));
}

TEST(GrpcBackendTest, AnswersOfAnotherLengthAreWrong) {
  const RequestRecord fewer = Ask([](const v1::GenerateRequest& request, Writer& writer) {
    ScriptedInference::WriteTokens(writer, kOutput - 1);
    ScriptedInference::WriteFinish(writer, v1::FINISH_REASON_STOP);
    ScriptedInference::WriteSummary(writer, request.token_ids().ids_size(), kOutput - 1);
    return grpc::Status::OK;
  });
  EXPECT_EQ(Judge(fewer, true), Verdict::kWrongLength);
  const RequestRecord lost = Ask([](const v1::GenerateRequest& request, Writer& writer) {
    ScriptedInference::WriteTokens(writer, kOutput - 1);
    ScriptedInference::WriteFinish(writer, v1::FINISH_REASON_LENGTH);
    ScriptedInference::WriteSummary(writer, request.token_ids().ids_size(), kOutput);
    return grpc::Status::OK;
  });
  EXPECT_EQ(Judge(lost, true), Verdict::kWrongLength);
  const RequestRecord prompt = Ask([](const v1::GenerateRequest&, Writer& writer) {
    ScriptedInference::WriteTokens(writer, kOutput);
    ScriptedInference::WriteFinish(writer, v1::FINISH_REASON_LENGTH);
    ScriptedInference::WriteSummary(writer, kPrompt + 1, kOutput);
    return grpc::Status::OK;
  });
  EXPECT_EQ(Judge(prompt, true), Verdict::kWrongLength);
}

TEST(GrpcBackendTest, ARequestBeyondItsDeadlineHasFailed) {
  std::atomic<bool> ended = false;
  const RequestRecord record = Ask(
      [&ended](const v1::GenerateRequest&, Writer& writer) {
        v1::GenerateResponse event;
        event.mutable_chunk()->add_token_ids(1);
        while (writer.Write(event)) {
        }
        ended = true;
        return grpc::Status::OK;
      },
      {.request = {.timeout = std::chrono::milliseconds(50)}});
  EXPECT_EQ(record.end.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Judge(record, true), Verdict::kFailed);
  EXPECT_TRUE(ended);
}

TEST(GrpcBackendTest, ACancelledRequestEndsAtTheServerToo) {
  std::atomic<bool> ended = false;
  Schedule schedule = OneRequest();
  schedule.requests[0].cancel_after = std::chrono::milliseconds(5);
  const RequestRecord record = Ask(
      [&ended](const v1::GenerateRequest&, Writer& writer) {
        v1::GenerateResponse event;
        event.mutable_chunk()->add_token_ids(1);
        while (writer.Write(event)) {
        }
        ended = true;
        return grpc::Status::OK;
      },
      {}, schedule);
  EXPECT_EQ(Judge(record, true), Verdict::kCancelled);
  EXPECT_TRUE(ended);
}

TEST(GrpcBackendTest, AServerThatIsNotThereOrNotReadyIsRefusedWithItsAddress) {
  const auto nowhere = NewGrpcBackend({.server = "127.0.0.1:1"})->Connect(Duration::zero());
  EXPECT_TRUE(absl::IsUnavailable(nowhere.status()));
  EXPECT_THAT(std::string(nowhere.status().message()),
              HasSubstr("no router answers at 127.0.0.1:1"));
  ScriptedInference server(WholeAnswer);
  server.set_ready(false);
  const auto starting = NewGrpcBackend({.server = server.address()})->Connect(Duration::zero());
  EXPECT_TRUE(absl::IsUnavailable(starting.status()));
  EXPECT_THAT(std::string(starting.status().message()), HasSubstr("not ready"));
}

}  // namespace
}  // namespace tandem::loadgen::grpc_backend_test
