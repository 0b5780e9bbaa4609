// The router lets workers in by the rule that the workers follow when they meet.
#include "router/kv_layouts.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvstore/kv_convert.h"
#include "server/worker_messages.h"

namespace tandem {
namespace {

constexpr KvLayout kLayout = {
    .num_layers = 4, .num_kv_heads = 2, .head_dim = 64, .block_tokens = 16, .dtype = DType::kBF16};

std::vector<KvLayout> Layouts() {
  std::vector<KvLayout> layouts;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3}) {
    for (const int32_t block_tokens : {8, 16, 256}) {
      layouts.push_back(kLayout);
      layouts.back().dtype = dtype;
      layouts.back().block_tokens = block_tokens;
    }
  }
  layouts.push_back(kLayout);
  layouts.back().num_layers = 5;
  layouts.push_back(kLayout);
  layouts.back().num_kv_heads = 1;
  layouts.push_back(kLayout);
  layouts.back().head_dim = 128;
  return layouts;
}

TEST(KvLayoutsTest, RouterAndWorkersAgree) {
  int possible = 0;
  for (const KvLayout& from : Layouts()) {
    for (const KvLayout& to : Layouts()) {
      const absl::Status router = CanConvert(ToProto(from), ToProto(to));
      const absl::Status worker = CanConvert(from, to);
      EXPECT_EQ(router.code(), worker.code())
          << ToText(ToProto(from)) << " to " << ToText(ToProto(to)) << ": " << router << ", "
          << worker;
      if (router.ok()) ++possible;
    }
  }
  // 9 pairs of types, each in 9 pairs of block sizes, and the three odd ones to themselves.
  EXPECT_EQ(possible, 9 * 9 + 3);
}

TEST(KvLayoutsTest, TheReasonNamesBothValues) {
  KvLayout other = kLayout;
  other.head_dim = 128;
  EXPECT_THAT(std::string(CanConvert(ToProto(kLayout), ToProto(other)).message()),
              testing::HasSubstr("head_dim is 64 at the sender and 128 at the receiver"));
  EXPECT_EQ(ToText(ToProto(kLayout)), "4 layers, 2 KV heads of 64, 16 tokens per block, bf16");
}

}  // namespace
}  // namespace tandem
