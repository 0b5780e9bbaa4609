#include "router/request/kv_fields.h"

#include <string>

#include "gtest/gtest.h"

namespace tandem::kv_fields_test {
namespace {

v1::GenerateRequest Asking(const std::string& quality, const std::string& eviction) {
  v1::GenerateRequest request;
  request.set_kv_quality(quality);
  request.set_kv_eviction(eviction);
  return request;
}

std::string Refusal(const std::string& quality, const std::string& eviction) {
  const absl::Status status = CheckKvFields(Asking(quality, eviction));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << quality << " " << eviction;
  return std::string(status.message());
}

std::string Eviction(const std::string& quality, const std::string& eviction,
                     const KvDefaults& defaults = {}) {
  const auto resolved = ResolveEviction(Asking(quality, eviction), defaults);
  return resolved ? ToString(*resolved) : "none";
}

TEST(KvFieldsTest, WhatIsUnknownOrContradictsItselfIsRefused) {
  EXPECT_NE(Refusal("best", "").find("\"best\" is unknown: use exact"), std::string::npos);
  EXPECT_NE(Refusal("", "h2o").find("kv_eviction"), std::string::npos);
  EXPECT_NE(Refusal("exact", "snapkv:2").find("gives up nothing"), std::string::npos);
  EXPECT_NE(Refusal("tiny", "none").find("use kv_quality=\"compact\""), std::string::npos);
  for (const char* quality : {"", "exact", "near-strict", "near", "compact", "tiny"}) {
    EXPECT_EQ(CheckKvFields(Asking(quality, "")), absl::OkStatus());
  }
  EXPECT_EQ(CheckKvFields(Asking("exact", "none")), absl::OkStatus());
  EXPECT_EQ(CheckKvFields(Asking("tiny", "random:3")), absl::OkStatus());
}

TEST(KvFieldsTest, TheClientsWordGoesBeforeTheRouters) {
  KvDefaults defaults;
  defaults.quality = KvQuality::kNear;
  defaults.eviction = TokenEviction{.policy = TokenEvictionPolicy::kSnapKv, .ratio = 4};
  EXPECT_EQ(ResolveQuality(Asking("", ""), defaults), KvQuality::kNear);
  EXPECT_EQ(ResolveQuality(Asking("tiny", ""), defaults), KvQuality::kTiny);
  EXPECT_EQ(Eviction("", "", defaults), "snapkv:4");
  EXPECT_EQ(Eviction("", "none", defaults), "none");
  EXPECT_EQ(Eviction("", "h2o-ema:3", defaults), "h2o-ema:3");
  EXPECT_EQ(Eviction("tiny", "", defaults), "snapkv:4");
}

TEST(KvFieldsTest, ExactKeepsAllAndTinyEvicts) {
  KvDefaults defaults;
  defaults.eviction = TokenEviction{};
  EXPECT_EQ(Eviction("exact", "", defaults), "none");
  EXPECT_EQ(Eviction("", ""), "none");
  EXPECT_EQ(Eviction("compact", ""), "none");
  EXPECT_EQ(Eviction("tiny", ""), "snapkv:1.15,output=keep");
  defaults.eviction.reset();
  defaults.quality = KvQuality::kTiny;
  EXPECT_EQ(Eviction("", "", defaults), "snapkv:1.15,output=keep");
}

}  // namespace
}  // namespace tandem::kv_fields_test
