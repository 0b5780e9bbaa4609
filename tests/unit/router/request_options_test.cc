// What the router itself does for the options of a request: bad words become tokens, the prompt is
// cut, its log-probabilities reach the client once.

#include "router/request/bad_words.h"
#include "tests/support/resume_fixture.h"

namespace tandem::request_options_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Words are tokens: "cat" and " cat" have one each, other texts have a token per letter.
class WordTokenizer final : public LetterTokenizer {
 public:
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                              const EncodeOptions& options) const override {
    if (text == "cat") return std::vector<int32_t>{500};
    if (text == " cat") return std::vector<int32_t>{501};
    return LetterTokenizer::Encode(text, options);
  }
};

std::vector<std::vector<int32_t>> Tokenized(const std::vector<std::string>& words) {
  const auto tokenized = TokenizeBadWords(WordTokenizer(), {words.begin(), words.end()});
  EXPECT_TRUE(tokenized.ok()) << tokenized.status();
  std::vector<std::vector<int32_t>> ids;
  for (const v1::TokenIds& word : *tokenized)
    ids.emplace_back(word.ids().begin(), word.ids().end());
  return ids;
}

// " ab" has three tokens, so it is "ab" behind a token for the space.
TEST(TokenizeBadWordsTest, AWordBehindASpaceIsAnotherOneWhereItHasAsManyTokens) {
  EXPECT_THAT(Tokenized({"cat", "ab"}),
              ElementsAre(ElementsAre(500), ElementsAre(501), ElementsAre('a', 'b')));
  EXPECT_THAT(Tokenized({"  cat"}), ElementsAre(ElementsAre(500), ElementsAre(501)));
}

class RequestOptionsTest : public ResumeFixture {
 protected:
  static v1::WorkerEvent Scores(int32_t first, const std::vector<int32_t>& ids) {
    v1::WorkerEvent event;
    event.mutable_prompt_logprobs()->set_first(first);
    for (const int32_t id : ids) {
      event.mutable_prompt_logprobs()->add_tokens()->mutable_sampled()->set_token_id(id);
    }
    return event;
  }
  void Score(const std::string& call, int32_t first, const std::vector<int32_t>& ids) {
    Say(call, Scores(first, ids));
  }
  std::vector<int32_t> PromptScored() const {
    std::vector<int32_t> ids;
    for (const v1::TokenLogprobs& token : stream_.prompt_logprobs) {
      ids.push_back(token.sampled().token_id());
    }
    return ids;
  }
  const v1::SequenceRequest& SequenceAtWorker() const { return workers_.streams.back()->sequence; }
};

TEST_F(RequestOptionsTest, BadWordsAndTheEndOfTheTextReachTheWorkers) {
  v1::GenerateRequest request = Ask();
  request.set_text("hello");
  request.set_truncate_prompt_tokens(3);
  request.add_bad_words("no");
  Submit(request);
  Reserved(5);
  EXPECT_THAT(SequenceAtWorker().prompt(), ElementsAre('l', 'l', 'o'));
  ASSERT_EQ(SequenceAtWorker().bad_words_size(), 1);
  EXPECT_THAT(SequenceAtWorker().bad_words(0).ids(), ElementsAre('n', 'o'));
}

TEST_F(RequestOptionsTest, AForcedOutputReachesTheWorkersWithoutWhatWouldEndIt) {
  v1::GenerateRequest request = Ask();
  request.clear_max_tokens();
  request.add_stop_token_ids(11);
  for (const int32_t id : {10, 11, 12}) request.add_forced_token_ids(id);
  Submit(request);
  Reserved(5);
  EXPECT_THAT(SequenceAtWorker().forced_token_ids(), ElementsAre(10, 11, 12));
  EXPECT_THAT(SequenceAtWorker().stop_token_ids(), IsEmpty());
  EXPECT_EQ(SequenceAtWorker().max_tokens(), 3);
  Say("prefill p0", {10});
  Finish("prefill p0", kHandedOff);
  EXPECT_THAT(SequenceAtWorker().forced_token_ids(), ElementsAre(10, 11, 12));
  Say("decode d0", {11, 12});
  Finish("decode d0", kLength);
  ASSERT_TRUE(stream_.end.has_value());
  EXPECT_TRUE(stream_.end->ok()) << *stream_.end;
  EXPECT_THAT(stream_.tokens, ElementsAre(10, 11, 12));
}

TEST_F(RequestOptionsTest, BadWordsGoWithAPromptOfTokens) {
  v1::GenerateRequest request = Ask();
  request.mutable_token_ids()->clear_ids();
  for (const int32_t id : {7, 8, 9}) request.mutable_token_ids()->add_ids(id);
  request.add_bad_words("x");
  Submit(request);
  Reserved(5);
  EXPECT_THAT(SequenceAtWorker().prompt(), ElementsAre(7, 8, 9));
  EXPECT_EQ(SequenceAtWorker().bad_words_size(), 1);
}

TEST_F(RequestOptionsTest, BadWordsThatLeaveNoTokenAreRefusedOnceTheyAreTokenized) {
  v1::GenerateRequest request = Ask();
  request.mutable_sampling()->add_allowed_token_ids('x');
  request.add_bad_words("x");
  Submit(request);
  ASSERT_TRUE(stream_.end.has_value());
  EXPECT_EQ(stream_.end->code(), absl::StatusCode::kInvalidArgument) << *stream_.end;
  ExpectNothingLeft();
}

TEST_F(RequestOptionsTest, PromptLogprobsComeOnceThoughTheirWorkerIsLost) {
  Join("p1", kPrefillRole);
  v1::GenerateRequest request = Ask();
  request.set_prompt_logprobs(0);
  Submit(request);
  Reserved(5);
  EXPECT_TRUE(SequenceAtWorker().has_prompt_logprobs());
  const std::string first = workers_.streams.back()->name;
  const std::string prompt_second = first == "prefill p0" ? "prefill p1" : "prefill p0";
  Score(first, 1, {2});
  LoseCall(first);
  Reserved(6);
  Score(prompt_second, 1, {2, 3});
  EXPECT_THAT(PromptScored(), ElementsAre(2, 3));
  Say(prompt_second, {10});
  Finish(prompt_second, kHandedOff);
  Say("decode d0", {11, 12, 13});
  Finish("decode d0", kLength);
  ASSERT_TRUE(stream_.end.has_value());
  EXPECT_TRUE(stream_.end->ok()) << *stream_.end;
  EXPECT_THAT(stream_.tokens, ElementsAre(10, 11, 12, 13));
}

TEST_F(RequestOptionsTest, PositionsThatAreMissingOrDoNotExistFailTheRequest) {
  for (const auto& [position, ids] : {std::pair(2, std::vector{3}), std::pair(0, std::vector{1}),
                                      std::pair(1, std::vector{2, 3, 4})}) {
    stream_ = RecordingStream();
    v1::GenerateRequest request = Ask();
    request.set_prompt_logprobs(0);
    Submit(request);
    Reserved(5);
    Score("prefill p0", position, ids);
    ASSERT_TRUE(stream_.end.has_value());
    EXPECT_EQ(stream_.end->code(), absl::StatusCode::kInternal) << *stream_.end;
  }
}

TEST_F(RequestOptionsTest, APromptAloneEndsWithoutATokenOrAReservation) {
  v1::GenerateRequest request = Ask();
  request.set_prompt_logprobs(0);
  request.set_max_tokens(0);
  Submit(request);
  EXPECT_EQ(workers_.reservations.back()->request.max_tokens(), 1);
  Reserved(5);
  Score("prefill p0", 1, {2, 3});
  Finish("prefill p0", kLength);
  ASSERT_TRUE(stream_.end.has_value());
  EXPECT_TRUE(stream_.end->ok()) << *stream_.end;
  EXPECT_THAT(stream_.tokens, IsEmpty());
  ASSERT_EQ(stream_.finishes.size(), 1u);
  EXPECT_EQ(stream_.finishes[0].reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(stream_.finishes[0].stages().ttft_ms(), 0);
  EXPECT_THAT(workers_.released, ElementsAre("d0#5"));
  ExpectNothingLeft();
}

}  // namespace
}  // namespace tandem::request_options_test
