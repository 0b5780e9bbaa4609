#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "server/openai/answer.h"
#include "tests/support/letter_tokenizer.h"

namespace tandem::openai::answers {

// The data of each server-sent event of `stream`.
inline std::vector<std::string> EventsIn(std::string_view stream) {
  std::vector<std::string> events;
  constexpr std::string_view kBegin = "data: ";
  constexpr std::string_view kEnd = "\n\n";
  while (!stream.empty()) {
    EXPECT_TRUE(stream.starts_with(kBegin)) << stream;
    const size_t end = stream.find(kEnd);
    EXPECT_NE(end, std::string_view::npos);
    events.emplace_back(stream.substr(kBegin.size(), end - kBegin.size()));
    stream.remove_prefix(end + kEnd.size());
  }
  return events;
}

// A part of choice `index`: its text and token ids.
inline v1::GenerateResponse Chunk(int32_t index, const std::string& text,
                                  const std::vector<int32_t>& ids) {
  v1::GenerateResponse event;
  event.mutable_chunk()->set_index(index);
  event.mutable_chunk()->set_text(text);
  event.mutable_chunk()->mutable_token_ids()->Add(ids.begin(), ids.end());
  return event;
}

// A letter with its log-probability, and a less probable one.
inline v1::GenerateResponse Letter(char letter, float logprob) {
  v1::GenerateResponse event = Chunk(0, std::string(1, letter), {letter});
  v1::TokenLogprobs& entry = *event.mutable_chunk()->add_logprobs();
  entry.mutable_sampled()->set_token_id(letter);
  entry.mutable_sampled()->set_logprob(logprob);
  v1::TokenLogprob& top = *entry.add_top();
  top.set_token_id('z');
  top.set_logprob(-0.5);
  return event;
}

// The end of choice `index`, on the disaggregated route with decode worker d0.
inline v1::GenerateResponse Finish(int32_t index, v1::FinishReason reason,
                                   const std::string& stop = "") {
  v1::GenerateResponse event;
  event.mutable_finish()->set_index(index);
  event.mutable_finish()->set_reason(reason);
  event.mutable_finish()->set_stop(stop);
  event.mutable_finish()->set_route(v1::ROUTE_DISAGGREGATED);
  event.mutable_finish()->set_decode_worker("d0");
  return event;
}

// What the request took, of which two tokens of the prompt were cached.
inline v1::GenerateResponse Summary(int32_t prompt_tokens, int32_t completion_tokens) {
  v1::GenerateResponse event;
  v1::Usage& usage = *event.mutable_summary()->mutable_usage();
  usage.set_prompt_tokens(prompt_tokens);
  usage.set_completion_tokens(completion_tokens);
  usage.set_cached_tokens(2);
  return event;
}

// Answers of completions and chats to events that the test makes, by a tokenizer of letters.
class AnswerTest : public testing::Test {
 protected:
  Answer Completion(const AnswerOptions& options) { return Answer(kHead, options, *completions_); }
  Answer Chat(const AnswerOptions& options) { return Answer(kHead, options, *chats_); }

  PieceOptions Pieces() const {
    return {.max_tokens = 3, .eos_token_ids = {127}, .stop_token_ids = {7}, .tokenizer = &letters_};
  }

  const AnswerHead kHead = {.id = "r1", .created = 5, .model = "m", .fingerprint = "f"};
  const LetterTokenizer letters_{};
  const TokenTexts texts_{&letters_};
  const std::unique_ptr<AnswerFormat> completions_ = NewCompletionFormat(texts_);
  const std::unique_ptr<AnswerFormat> chats_ = NewChatFormat(texts_);
};

}  // namespace tandem::openai::answers
