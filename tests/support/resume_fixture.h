#pragma once

#include <string>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/router_fixture.h"

namespace tandem {

// Requests whose workers are lost or leave. Prefill worker p0 and decode worker d0 are there.
class ResumeFixture : public RouterFixture {
 protected:
  static constexpr auto kPrefillRole = v1::WORKER_ROLE_PREFILL;
  static constexpr auto kDecodeRole = v1::WORKER_ROLE_DECODE;
  static constexpr auto kUnifiedRole = v1::WORKER_ROLE_UNIFIED;

  void LoseCall(const std::string& call) {
    End(call, Unavailable("Connection reset by peer"), kNetwork);
  }

  std::vector<int32_t> SoFar(size_t index = 0) const {
    const auto& ids = workers_.so_far.at(index).token_ids();
    return {ids.begin(), ids.end()};
  }

  // The rest of a disaggregated attempt: 10 to 13 in all, of which the client has some.
  void ContinueAt(const std::string& prefill, const std::string& decode, uint64_t reservation,
                  const std::vector<int32_t>& rest) {
    Reserved(reservation);
    Say("prefill " + prefill, {10});
    Finish("prefill " + prefill, kHandedOff);
    Say("decode " + decode, rest);
    Finish("decode " + decode, kLength);
  }
  void ExpectTheAnswer(int32_t resumes) {
    ASSERT_TRUE(stream_.end.has_value());
    EXPECT_TRUE(stream_.end->ok()) << *stream_.end;
    EXPECT_THAT(stream_.tokens, ::testing::ElementsAre(10, 11, 12, 13)) << "each once";
    ASSERT_EQ(stream_.finishes.size(), 1u);
    EXPECT_EQ(stream_.finishes[0].reason(), v1::FINISH_REASON_LENGTH);
    EXPECT_EQ(stream_.summary->usage().completion_tokens(), 4);
    EXPECT_EQ(stream_.summary->usage().resumes(), resumes);
    ExpectNothingLeft();
  }

  // The client has the first token; d0 waits for the KV in reservation 5.
  void SubmitAndPrefill() {
    Submit(Ask());
    Reserved(5);
    Say("prefill p0", {10});
  }
  // The same, and d0 has the KV.
  void SubmitAndHandOver() {
    SubmitAndPrefill();
    Finish("prefill p0", kHandedOff);
  }
  // Time goes by in which only these workers report.
  void LetLapseAllBut(const std::vector<std::string>& alive) {
    Pass(std::chrono::seconds(4));
    for (const std::string& name : alive) Beat(name);
    Pass(std::chrono::seconds(1));
  }
  // Why requests continued elsewhere so far, and how often.
  std::string Causes() {
    const v1::ResumeUse use = router_.Status().resumes();
    std::string text;
    for (const v1::ResumeCause& cause : use.causes()) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", cause.cause(), cause.resumes());
    }
    return text;
  }
};

}  // namespace tandem
