#include "server/config/nearest_name.h"

#include "gtest/gtest.h"

namespace tandem::nearest_name_test {
namespace {

const std::set<std::string> kKnown = {"kv-bytes", "kv-tokens", "kv-transport", "port", "http-port"};

TEST(NearestNameTest, FindsWhatWasMeant) {
  EXPECT_EQ(NearestName("kv-transprot", kKnown), "kv-transport");
  EXPECT_EQ(NearestName("KV_BYTES", kKnown), "kv-bytes");
  EXPECT_EQ(NearestName("--http_prot", kKnown), "http-port");
  EXPECT_EQ(NearestName("prot", kKnown), "port");
}

TEST(NearestNameTest, SaysNothingWhereNothingIsNear) {
  EXPECT_EQ(NearestName("temperature", kKnown), "");
  EXPECT_EQ(NearestName("", kKnown), "");
  EXPECT_EQ(NearestName("-----", kKnown), "");
  EXPECT_EQ(NearestName(std::string(100000, 'x'), kKnown), "");
  EXPECT_EQ(DidYouMean("temperature", kKnown, ": see --help"), ": see --help");
}

}  // namespace
}  // namespace tandem::nearest_name_test
