#include "router/request/tokenize_pool.h"

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/retry_after.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/blocking_tokenizer.h"

namespace tandem::tokenize_pool_test {
namespace {

constexpr TokenizePoolOptions kOptions{
    .threads = 2, .short_text_bytes = 4, .max_long_text_bytes = 20, .max_short_texts = 3};

const std::string kLong = "wait for the test";  // 17 bytes
const std::string kShort = "ab";

// A text whose answer is kept.
struct Answer {
  absl::Notification came;
  absl::StatusOr<std::vector<int32_t>> ids;
};

TokenizePool::Job JobOf(TokenizePool& pool, const std::string& text, Answer& answer) {
  auto admission = pool.Admit(text.size());
  EXPECT_TRUE(admission.ok()) << admission.status();
  return {.admission = *std::move(admission),
          .work = TokenizeWork(text, EncodeOptions()),
          .unwanted = {},
          .done = [&answer](absl::StatusOr<std::vector<int32_t>> ids) {
            answer.ids = std::move(ids);
            answer.came.Notify();
          }};
}

TEST(TokenizePoolTest, AShortTextDoesNotWaitForALongOne) {
  BlockingTokenizer tokenizer(kLong);
  Answer slow;
  Answer quick;
  TokenizePool pool(&tokenizer, kOptions);
  pool.Tokenize(JobOf(pool, kLong, slow));
  tokenizer.WaitUntilBlocked();
  pool.Tokenize(JobOf(pool, kShort, quick));
  quick.came.WaitForNotification();
  EXPECT_THAT(*quick.ids, testing::ElementsAre('a', 'b'));
  EXPECT_FALSE(slow.came.HasBeenNotified());
  EXPECT_EQ(pool.Use().long_texts(), 1);
  EXPECT_EQ(pool.Use().long_text_bytes(), kLong.size());
  tokenizer.Unblock();
  slow.came.WaitForNotification();
  EXPECT_EQ(slow.ids->size(), kLong.size());
}

TEST(TokenizePoolTest, LongTextsBeyondTheBoundAreRefusedAndShortOnesAreNot) {
  BlockingTokenizer tokenizer("");
  TokenizePool pool(&tokenizer, kOptions);
  const auto held = pool.Admit(kLong.size());
  ASSERT_TRUE(held.ok());
  const absl::Status refused = pool.Admit(kLong.size()).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_TRUE(RetryAfter(refused).has_value());
  EXPECT_TRUE(pool.Admit(kShort.size()).ok());
  EXPECT_EQ(pool.Use().refused(), 1u);
}

TEST(TokenizePoolTest, ShortTextsAreBoundedByTheirNumberAndComeAgainWhenOthersHaveLeft) {
  BlockingTokenizer tokenizer("");
  TokenizePool pool(&tokenizer, kOptions);
  {
    std::vector<TokenizePool::Admission> held;
    for (int i = 0; i < 3; ++i) held.push_back(*pool.Admit(kShort.size()));
    EXPECT_FALSE(pool.Admit(kShort.size()).ok());
  }
  EXPECT_TRUE(pool.Admit(kShort.size()).ok());
}

TEST(TokenizePoolTest, ATextWhoseClientHasGoneIsNotTokenized) {
  BlockingTokenizer tokenizer("");
  TokenizePool pool(&tokenizer, kOptions);
  Answer answer;
  TokenizePool::Job job = JobOf(pool, kShort, answer);
  job.unwanted = [] { return true; };
  pool.Tokenize(std::move(job));
  answer.came.WaitForNotification();
  EXPECT_EQ(answer.ids.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(tokenizer.encoded(), 0);
}

TEST(TokenizePoolTest, TextsThatWaitWhenThePoolEndsAreAnswered) {
  BlockingTokenizer tokenizer(kLong);
  Answer first;
  Answer second;
  TokenizePoolOptions options = kOptions;
  options.threads = 1;
  std::optional<TokenizePool> pool(std::in_place, &tokenizer, options);
  pool->Tokenize(JobOf(*pool, kLong, first));
  tokenizer.WaitUntilBlocked();
  pool->Tokenize(JobOf(*pool, kShort, second));
  std::thread unblock([&tokenizer] { tokenizer.Unblock(); });
  pool.reset();
  unblock.join();
  EXPECT_TRUE(first.came.HasBeenNotified());
  EXPECT_TRUE(second.came.HasBeenNotified());
}

}  // namespace
}  // namespace tandem::tokenize_pool_test
