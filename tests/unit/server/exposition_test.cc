// Metrics in the formats that Prometheus reads.

#include "server/admin/exposition.h"

#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::exposition_test {
namespace {

using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr auto kText = ExpositionFormat::kText;
constexpr auto kOpenMetrics = ExpositionFormat::kOpenMetrics;

MetricFamily Counter() {
  return {.name = "served_total",
          .help = "Requests served",
          .kind = MetricKind::kCounter,
          .samples = {{.labels = {{"route", "a"}}, .value = 3}, {.labels = {}, .value = 0.5}}};
}

MetricFamily Latency() {
  Histogram histogram({0.25, 1});
  histogram.Observe(0.125, "first", std::chrono::steady_clock::now());
  histogram.Observe(0.5, 2);
  histogram.Observe(9, "say \"hi\"", std::chrono::steady_clock::now());
  return {.name = "latency_seconds",
          .help = "Time taken",
          .kind = MetricKind::kHistogram,
          .histograms = {{.labels = {{"model_name", "m"}}, .state = histogram.state()}}};
}

TEST(ExpositionTest, CountersKeepTheirNameInTheTextFormat) {
  EXPECT_EQ(Expose({{Counter()}}, kText),
            "# HELP served_total Requests served\n"
            "# TYPE served_total counter\n"
            "served_total{route=\"a\"} 3\n"
            "served_total 0.5\n");
}

TEST(ExpositionTest, OpenMetricsNamesTheFamilyOfACounterWithoutTotalAndSaysWhereItEnds) {
  EXPECT_EQ(Expose({{Counter()}}, kOpenMetrics),
            "# HELP served Requests served\n"
            "# TYPE served counter\n"
            "served_total{route=\"a\"} 3\n"
            "served_total 0.5\n"
            "# EOF\n");
}

TEST(ExpositionTest, BucketsOfHistogramsAreCumulative) {
  EXPECT_EQ(Expose({{Latency()}}, kText),
            "# HELP latency_seconds Time taken\n"
            "# TYPE latency_seconds histogram\n"
            "latency_seconds_bucket{model_name=\"m\",le=\"0.25\"} 1\n"
            "latency_seconds_bucket{model_name=\"m\",le=\"1.0\"} 3\n"
            "latency_seconds_bucket{model_name=\"m\",le=\"+Inf\"} 4\n"
            "latency_seconds_sum{model_name=\"m\"} 10.125\n"
            "latency_seconds_count{model_name=\"m\"} 4\n");
}

TEST(ExpositionTest, OpenMetricsHasAnExemplarForEachBucketThatKeptOne) {
  const std::string page = Expose({{Latency()}}, kOpenMetrics);
  const std::string seconds = " [0-9]+\\.[0-9]+\n";
  EXPECT_THAT(page,
              ContainsRegex("le=\"0\\.25\"\\} 1 # \\{request_id=\"first\"\\} 0\\.125" + seconds));
  EXPECT_THAT(page, HasSubstr("le=\"1.0\"} 3\n"));
  EXPECT_THAT(page, HasSubstr("le=\"+Inf\"} 4 # {request_id=\"say \\\"hi\\\"\"} 9 "));
  EXPECT_THAT(page, EndsWith("# EOF\n"));
}

TEST(ExpositionTest, AnIdThatIsTooLongForAnExemplarIsLeftOut) {
  Histogram histogram({});
  histogram.Observe(1, std::string(119, 'x'), std::chrono::steady_clock::now());
  const MetricFamily family{.name = "n",
                            .help = "h",
                            .kind = MetricKind::kHistogram,
                            .histograms = {{.labels = {}, .state = histogram.state()}}};
  EXPECT_THAT(Expose({{family}}, kOpenMetrics), Not(HasSubstr("request_id")));
}

TEST(ExpositionTest, LabelsAndNumbersAreWrittenAsTheFormatWants) {
  const double inf = std::numeric_limits<double>::infinity();
  const MetricFamily family{
      .name = "n",
      .help = "a \\ b",
      .samples = {{.labels = {{"x", "a\"b\\c\nd"}, {"y", ""}}, .value = 1500000000},
                  {.labels = {}, .value = 0.00025},
                  {.labels = {}, .value = -inf},
                  {.labels = {}, .value = std::numeric_limits<double>::quiet_NaN()}}};
  EXPECT_EQ(Expose({{family}}, kText),
            "# HELP n a \\\\ b\n# TYPE n gauge\n"
            "n{x=\"a\\\"b\\\\c\\nd\",y=\"\"} 1500000000\nn 0.00025\nn -Inf\nn NaN\n");
}

TEST(ExpositionTest, AFamilyWithoutASeriesIsNotOnThePage) {
  EXPECT_THAT(Expose({{MetricFamily{.name = "n", .help = "h"}}}, kText), IsEmpty());
}

TEST(FormatForTest, ItIsTheOneThatTheClientPrefers) {
  EXPECT_EQ(FormatFor(std::nullopt), kText);
  EXPECT_EQ(FormatFor("*/*"), kText);
  EXPECT_EQ(FormatFor("text/plain"), kText);
  EXPECT_EQ(FormatFor("application/openmetrics-text"), kOpenMetrics);
  EXPECT_EQ(FormatFor("Application/OpenMetrics-Text; version=1.0.0"), kOpenMetrics);
  EXPECT_EQ(FormatFor("application/openmetrics-text;q=0"), kText);
  EXPECT_EQ(FormatFor("application/openmetrics-text;q=0.3, text/plain;q=0.5"), kText);
  // What Prometheus 2.42 sends.
  EXPECT_EQ(FormatFor("application/openmetrics-text;version=1.0.0,application/openmetrics-text;"
                      "version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"),
            kOpenMetrics);
}

}  // namespace
}  // namespace tandem::exposition_test
