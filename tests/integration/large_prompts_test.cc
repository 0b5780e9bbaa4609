// Prompts of megabytes, more of them than there are threads to take them.

#include <algorithm>
#include <atomic>
#include <future>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "tests/support/test_cluster.h"

namespace tandem::large_prompts_test {
namespace {

constexpr int kClients = 24;
// As large as one request may be, newlines being the slowest to tokenize.
const std::string& LargeText() {
  static const std::string text((4 << 20) - 1024, '\n');
  return text;
}

struct Counts {
  std::atomic<int> refused = 0;   // RESOURCE_EXHAUSTED
  std::atomic<int> too_long = 0;  // INVALID_ARGUMENT
  std::atomic<int> tokenized = 0;
  std::atomic<int> other = 0;

  void Add(const absl::Status& status) {
    if (status.ok()) {
      ++tokenized;
    } else if (absl::IsResourceExhausted(status)) {
      ++refused;
    } else if (absl::IsInvalidArgument(status)) {
      ++too_long;
    } else {
      ADD_FAILURE() << status;
      ++other;
    }
  }
};

class LargePromptsTest : public testing::Test {
 protected:
  // Many clients ask at once, `rounds` times each; meanwhile an honest one is served and all
  // workers keep their leases.
  template <typename AskForMuch>
  void Flood(int rounds, const AskForMuch& ask) {
    std::atomic<bool> over = false;
    std::vector<std::future<void>> clients;
    for (int i = 0; i < kClients; ++i) {
      clients.push_back(std::async(std::launch::async, [&ask, rounds] {
        for (int round = 0; round < rounds; ++round) ask();
      }));
    }
    auto honest = std::async(std::launch::async, [this, &over] {
      int answered = 0;
      do {
        const Outcome outcome = Ask(client_, TextRequest("It is", v1::ROUTE_AUTO, 4));
        EXPECT_TRUE(outcome.status.ok()) << outcome.status;
        ++answered;
      } while (!over);
      return answered;
    });
    for (auto& client : clients) client.get();
    over = true;
    EXPECT_GE(honest.get(), 1);
    const auto status = cluster_.client().GetStatus(std::chrono::minutes(1));
    ASSERT_TRUE(status.ok()) << status.status();
    EXPECT_EQ(status->leases_lapsed(), 0u);
    EXPECT_EQ(status->workers_size(), 3);
  }

  TestCluster cluster_;
  Client client_{cluster_.address()};
  Client others_{cluster_.address()};
};

// The first is refused by the router, the second by gRPC in its place.
TEST_F(LargePromptsTest, ARequestThatIsTooLargeIsToldItsSizeTheLimitAndTheFlag) {
  for (const size_t megabytes : {5, 9}) {
    const v1::GenerateRequest request =
        TextRequest(std::string(megabytes << 20, 'a'), v1::ROUTE_AUTO, 1);
    const std::string told = fmt::format(
        "the request has {} bytes; at most 4194304 are taken (--max-message-bytes of "
        "the router)",
        request.ByteSizeLong());
    const absl::Status status = Ask(client_, request).status;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(std::string(status.message()), told);
  }
}

TEST_F(LargePromptsTest, PromptsThatCannotFitAreRefusedByTheirLength) {
  constexpr int kRounds = 3;
  Counts counts;
  Flood(kRounds,
        [&] { counts.Add(Ask(others_, TextRequest(LargeText(), v1::ROUTE_AUTO, 4)).status); });
  EXPECT_EQ(counts.too_long, kClients * kRounds);
  const auto status = client_.GetStatus(std::chrono::minutes(1));
  EXPECT_EQ(status->tokenizing().long_texts(), 0);
}

// One round is enough for a queue that is full and for clients that are refused. Each text that is
// taken keeps a core busy for seconds, so that the eight outlast a lease by far.
TEST_F(LargePromptsTest, TextsToTokenizeWaitWithinABoundAndLeaveHeartbeatsAlone) {
  Counts counts;
  v1::TokenizeRequest request;
  request.set_text(LargeText());
  Flood(1, [&] { counts.Add(others_.Tokenize(request, std::chrono::minutes(2)).status()); });
  EXPECT_GT(counts.tokenized, 0);
  EXPECT_GT(counts.refused, 0) << "32 MiB hold eight of these texts";
  EXPECT_EQ(counts.tokenized + counts.refused, kClients);
}

}  // namespace
}  // namespace tandem::large_prompts_test
