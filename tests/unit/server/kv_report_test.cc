// What `tandem inspect kv` prints.

#include "server/admin/kv_report.h"

#include <string>

#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/admin/status_json.h"

namespace tandem::kv_report_test {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int kReportColumns = 88;  // 20 of them for bars

void AddLayer(v1::KvHandoff& handoff, uint64_t k_wire_bytes, uint64_t v_wire_bytes) {
  v1::KvLayerBytes& layer = *handoff.add_layers();
  layer.set_k_kv_bytes(1000);
  layer.set_k_wire_bytes(k_wire_bytes);
  layer.set_v_kv_bytes(1000);
  layer.set_v_wire_bytes(v_wire_bytes);
  layer.set_k_escapes(3);
  layer.set_blocks(6);
  layer.set_raw_blocks(2);
}

v1::RequestExplanation HandedOff() {
  v1::RequestExplanation request;
  request.set_request_id("mine");
  request.set_prompt_tokens(96);
  request.set_kv_quality("near");
  v1::KvHandoff& handoff = *request.mutable_handoff();
  handoff.set_prefill_worker("prefill-0");
  handoff.set_decode_worker("decode-0");
  handoff.set_evicted_tokens(5);
  handoff.mutable_bytes()->set_raw(4000);
  handoff.mutable_bytes()->set_wire(2200);
  handoff.mutable_bytes()->set_transfer_ms(1.5);
  handoff.mutable_bytes()->set_codec("step0.09");
  AddLayer(handoff, 500, 400);
  AddLayer(handoff, 600, 500);
  return request;
}

std::string LineOf(const std::string& text, const std::string& part) {
  const size_t at = text.find(part);
  if (at == std::string::npos) return "";
  const size_t begin = text.rfind('\n', at) + 1;
  return text.substr(begin, text.find('\n', at) - begin);
}

std::string Times(const std::string& text, int times) {
  std::string repeated;
  for (int i = 0; i < times; ++i) repeated += text;
  return repeated;
}

TEST(KvReportTest, EachLayerHasARowForKAndOneForVWithItsBar) {
  const std::string text = HandoffText(HandedOff(), kReportColumns);
  EXPECT_THAT(text, StartsWith("KV of request mine from prefill-0 to decode-0\n"
                               "  96 prompt tokens, 5 of them evicted before; class near, codec "
                               "step0.09\n"
                               "  4000 bytes of KV, 2200 on the wire (1.82x), moved in 1.500 "
                               "ms\n"));
  EXPECT_THAT(LineOf(text, "    0 K"),
              AllOf(HasSubstr(" 1000 "), HasSubstr(" 500 "), HasSubstr(" 2.00 "), HasSubstr(" 3 "),
                    HasSubstr(" 2/6 "), EndsWith(" " + Times("█", 10) + Times("░", 10))));
  EXPECT_THAT(LineOf(text, " 400 "), AllOf(StartsWith("      V "), HasSubstr(" 2.50 "),
                                           EndsWith(" " + Times("█", 8) + Times("░", 12))));
  EXPECT_THAT(LineOf(text, "    1 K"), EndsWith(" " + Times("█", 12) + Times("░", 8)));
}

TEST(KvReportTest, TotalsAddUpToWhatWasSent) {
  const std::string text = HandoffText(HandedOff(), kReportColumns);
  EXPECT_THAT(LineOf(text, "  all K"), AllOf(HasSubstr(" 2000 "), HasSubstr(" 1100 ")));
  EXPECT_THAT(LineOf(text, "      K+V"), AllOf(HasSubstr(" 4000 "), HasSubstr(" 2000 "),
                                               HasSubstr(" 2.00 "), EndsWith(" 4/12")));
  EXPECT_THAT(text, EndsWith("  and 200 bytes of frame headers, tables of the codec and the "
                             "commit\n"));
}

// A block that is not full is sent whole where nothing encodes it.
TEST(KvReportTest, KvThatGrowsOnTheWireHasALongerBar) {
  v1::RequestExplanation request = HandedOff();
  request.mutable_handoff()->mutable_layers(0)->set_k_wire_bytes(2000);
  const std::string text = HandoffText(request, kReportColumns);
  EXPECT_THAT(LineOf(text, "    0 K"), AllOf(HasSubstr(" 0.50 "), EndsWith(" " + Times("█", 20))));
  EXPECT_THAT(LineOf(text, "    1 K"), EndsWith(" " + Times("█", 6) + Times("░", 4)));
}

TEST(KvReportTest, NothingSentIsNoTable) {
  v1::RequestExplanation request = HandedOff();
  request.mutable_handoff()->clear_layers();
  request.mutable_handoff()->mutable_bytes()->set_wire(0);
  const std::string text = HandoffText(request, kReportColumns);
  EXPECT_THAT(text, AllOf(HasSubstr("0 on the wire (-x)"), HasSubstr("has sent no KV"),
                          Not(HasSubstr("LAYER"))));
}

TEST(KvReportTest, WhatIsNotKnownSaysWhy) {
  EXPECT_TRUE(CheckHandoff(HandedOff()).ok());
  v1::RequestExplanation request;
  request.set_request_id("mine");
  EXPECT_EQ(CheckHandoff(request).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(CheckHandoff(request).message()), HasSubstr("has reported its KV yet"));
  request.mutable_outcome()->set_status("OK");
  EXPECT_THAT(std::string(CheckHandoff(request).message()), HasSubstr("ran on one worker"));
}

TEST(KvReportTest, JsonHasTheLayersAndTheirSums) {
  const auto json = ParseJson(HandoffJson(HandedOff()));
  EXPECT_EQ(json["request_id"], "mine");
  EXPECT_EQ(json["prompt_tokens"], 96);
  EXPECT_EQ(json["kv_quality"], "near");
  const auto& handoff = json["handoff"];
  EXPECT_EQ(handoff["bytes"]["codec"], "step0.09");
  EXPECT_EQ(handoff["evicted_tokens"], 5);
  ASSERT_EQ(handoff["layers"].size(), 2u);
  EXPECT_EQ(handoff["layers"][1]["k_wire_bytes"], 600);
  EXPECT_EQ(handoff["totals"]["k_wire_bytes"], 1100);
  EXPECT_EQ(handoff["totals"]["v_kv_bytes"], 2000);
  EXPECT_EQ(handoff["totals"]["k_escapes"], 6);
  EXPECT_EQ(handoff["totals"]["raw_blocks"], 4);
}

}  // namespace
}  // namespace tandem::kv_report_test
