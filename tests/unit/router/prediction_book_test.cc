#include "router/explain/prediction_book.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::prediction_book_test {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;

constexpr auto kTtft = PredictionTerm::kTtft;
constexpr auto kTpot = PredictionTerm::kTpot;
constexpr auto kTransfer = PredictionTerm::kTransfer;

ScoredPlacement Pair(const std::string& prefill, const std::string& decode,
                     uint64_t incarnation = 1) {
  return {.route = v1::ROUTE_DISAGGREGATED,
          .prefill = {prefill, incarnation},
          .decode = {decode, 1},
          .score = {}};
}

ScoredPlacement One(const std::string& worker) {
  return {.route = v1::ROUTE_UNIFIED, .prefill = {worker, 1}, .decode = {}, .score = {}};
}

Residual Off(PredictionTerm term, double relative, double interval_ms = 0) {
  return {.term = term,
          .predicted_ms = 100 * (1 + relative),
          .actual_ms = 100,
          .relative = relative,
          .interval_ms = interval_ms};
}

// Of the errors that are reported, the one of this worker and term; 0 requests when there is none.
v1::PredictionError Reported(const PredictionBook& book, const std::string& worker,
                             const std::string& term, const std::string& peer = "") {
  v1::PredictionUse use;
  book.AddTo(use);
  for (const v1::PredictionError& error : use.errors()) {
    if (error.worker() == worker && error.term() == term && error.peer() == peer) return error;
  }
  return {};
}

TEST(PredictionBookTest, KnowsWhatTheMessagesOfAWorkerTakeOnceEnoughRequestsEnded) {
  PredictionBook book;
  const auto add = [&book](double ms) {
    book.Add(One("u0"), {{.term = PredictionTerm::kMessages, .actual_ms = ms}});
  };
  for (uint64_t i = 1; i < PredictionBook::kEnough; ++i) add(2);
  EXPECT_FALSE(book.MessagesMs({"u0", 1}).has_value());
  add(2);
  EXPECT_DOUBLE_EQ(*book.MessagesMs({"u0", 1}), 2);
  EXPECT_FALSE(book.MessagesMs({"u0", 2}).has_value()) << "another process of that name";
  add(1000);
  EXPECT_LT(*book.MessagesMs({"u0", 1}), 3) << "a single stall changes little";
  for (int i = 0; i < 1000; ++i) add(40);
  EXPECT_NEAR(*book.MessagesMs({"u0", 1}), 40, 1) << "a change is followed";
}

TEST(PredictionBookTest, KnowsWhatHandOffsOfALinkTakeBesideTheirBytes) {
  PredictionBook book;
  const auto add = [&book](const std::string& decode, double ms) {
    book.Add(Pair("p0", decode), {{.term = PredictionTerm::kHandOff, .actual_ms = ms}});
  };
  for (uint64_t i = 1; i < PredictionBook::kEnough; ++i) add("d0", 0.5);
  EXPECT_FALSE(book.HandOffMs({"p0", 1}, {"d0", 1}).has_value());
  for (int i = 0; i < 20; ++i) add("d0", 0.5);
  for (int i = 0; i < 20; ++i) add("d1", -0.5);
  EXPECT_DOUBLE_EQ(*book.HandOffMs({"p0", 1}, {"d0", 1}), 0.5);
  EXPECT_EQ(*book.HandOffMs({"p0", 1}, {"d1", 1}), 0) << "the model of the link says too much";
  EXPECT_FALSE(book.HandOffMs({"p0", 2}, {"d0", 1}).has_value()) << "another process";
  for (int i = 0; i < 1000; ++i) add("d1", 0.5);
  EXPECT_NEAR(*book.HandOffMs({"p0", 1}, {"d1", 1}), 0.5, 0.01) << "no longer";
}

TEST(PredictionBookTest, ErrorsAreMeansOfAbsoluteAndOfSignedDifferences) {
  PredictionBook book;
  for (int i = 0; i < 5; ++i) {
    book.Add(One("u0"), {Off(kTtft, 0.3)});
    book.Add(One("u0"), {Off(kTtft, -0.1)});
  }
  const v1::PredictionError error = Reported(book, "u0", "ttft");
  EXPECT_EQ(error.compared(), 10u);
  EXPECT_NEAR(error.error(), 0.2, 1e-9);
  EXPECT_NEAR(error.bias(), 0.1, 1e-9);
  EXPECT_NEAR(error.interval(), PredictionBook::kIntervalFactor * 0.2, 1e-9);
  EXPECT_NEAR(*book.Overall(kTtft), 0.2, 1e-9);
}

TEST(PredictionBookTest, RecentRequestsWeighMore) {
  PredictionBook book;
  for (int i = 0; i < 1000; ++i) book.Add(One("u0"), {Off(kTtft, 0.0)});
  for (int i = 0; i < 64; ++i) book.Add(One("u0"), {Off(kTtft, 1.0)});
  EXPECT_NEAR(*book.Overall(kTtft), 1 - std::exp(-1), 0.01);
}

TEST(PredictionBookTest, NothingIsKnownOfTooFewRequests) {
  PredictionBook book;
  for (uint64_t i = 1; i < PredictionBook::kEnough; ++i) book.Add(One("u0"), {Off(kTtft, 0.3)});
  EXPECT_EQ(book.Overall(kTtft), std::nullopt);
  EXPECT_THAT(book.IntervalsFor(One("u0")), Each(0.0));
  EXPECT_EQ(Reported(book, "u0", "ttft").interval(), 0);
  book.Add(One("u0"), {Off(kTtft, 0.3)});
  EXPECT_NEAR(*book.Overall(kTtft), 0.3, 1e-9);
  EXPECT_NEAR(book.IntervalsFor(One("u0"))[static_cast<size_t>(kTtft)],
              PredictionBook::kIntervalFactor * 0.3, 1e-9);
}

TEST(PredictionBookTest, CoverageIsTheShareWithinWhatWasStated) {
  PredictionBook book;
  book.Add(One("u0"), {Off(kTtft, 0.9)});  // nothing was stated
  for (int i = 0; i < 10; ++i) {
    const double relative = i < 7 ? 0.1 : -0.4;
    book.Add(One("u0"), {Off(kTtft, relative, 25)});
  }
  EXPECT_NEAR(Reported(book, "u0", "ttft").coverage(), 0.7, 1e-9);
}

TEST(PredictionBookTest, EachWorkerAnswersForItsOwnTerms) {
  PredictionBook book;
  for (uint64_t i = 0; i < PredictionBook::kEnough; ++i) {
    book.Add(Pair("p0", "d0"), {Off(kTtft, 0.1), Off(kTpot, 0.2), Off(kTransfer, 0.3)});
    book.Add(Pair("p0", "d1"), {Off(kTtft, 0.1), Off(kTpot, 0.4), Off(kTransfer, 0.5)});
  }
  EXPECT_NEAR(*book.OfWorker(kTtft, {"p0", 1}), 0.1, 1e-9);
  EXPECT_EQ(book.OfWorker(kTtft, {"d0", 1}), std::nullopt);
  EXPECT_NEAR(*book.OfWorker(kTpot, {"d0", 1}), 0.2, 1e-9);
  EXPECT_NEAR(*book.OfWorker(kTpot, {"d1", 1}), 0.4, 1e-9);
  EXPECT_NEAR(*book.OfLink({"p0", 1}, {"d1", 1}), 0.5, 1e-9);
  EXPECT_EQ(book.OfLink({"p1", 1}, {"d1", 1}), std::nullopt);
  EXPECT_NEAR(*book.Overall(kTpot), 0.3, 0.05);
  EXPECT_EQ(Reported(book, "p0", "transfer", "d0").compared(), PredictionBook::kEnough);
  EXPECT_EQ(Reported(book, "", "ttft").compared(), 2 * PredictionBook::kEnough);
}

TEST(PredictionBookTest, AWorkerWithoutHistoryGetsTheIntervalOfAll) {
  PredictionBook book;
  for (uint64_t i = 0; i < PredictionBook::kEnough; ++i) book.Add(One("u0"), {Off(kTtft, 0.1)});
  const double stated = PredictionBook::kIntervalFactor * 0.1;
  EXPECT_NEAR(book.IntervalsFor(One("u1"))[static_cast<size_t>(kTtft)], stated, 1e-9);
}

TEST(PredictionBookTest, AProcessThatTakesOverANameStartsAnew) {
  PredictionBook book;
  for (int i = 0; i < 20; ++i) book.Add(Pair("p0", "d0"), {Off(kTtft, 0.5)});
  EXPECT_EQ(book.OfWorker(kTtft, {"p0", 2}), std::nullopt);
  book.Add(Pair("p0", "d0", 2), {Off(kTtft, 0.1)});
  EXPECT_EQ(Reported(book, "p0", "ttft").compared(), 1u);
}

TEST(PredictionBookTest, TheNumberOfWorkersAndLinksIsBounded) {
  PredictionBook book;
  for (size_t i = 0; i < PredictionBook::kMaxWorkers + 50; ++i) {
    book.Add(Pair("p0", "d" + std::to_string(i)), {Off(kTtft, 0.1), Off(kTransfer, 0.1)});
  }
  for (size_t i = 0; i < PredictionBook::kMaxWorkers + 50; ++i) {
    book.Add(One("u" + std::to_string(i)), {Off(kTtft, 0.1)});
  }
  v1::PredictionUse use;
  book.AddTo(use);
  EXPECT_EQ(static_cast<size_t>(use.errors_size()),
            2 + PredictionBook::kMaxWorkers + PredictionBook::kMaxLinks);
  EXPECT_EQ(Reported(book, "u0", "ttft").compared(), 0u) << "the oldest one made room";
  EXPECT_EQ(Reported(book, "u305", "ttft").compared(), 1u);
}

TEST(PredictionBookTest, RequestsThatCannotBeComparedAreCounted) {
  PredictionBook book;
  book.CountNotCompared();
  v1::PredictionUse use;
  book.AddTo(use);
  EXPECT_EQ(use.not_compared(), 1u);
  EXPECT_THAT(use.errors(), IsEmpty());
}

}  // namespace
}  // namespace tandem::prediction_book_test
