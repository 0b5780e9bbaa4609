#include "kvstore/expectations.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace tandem::expectations_test {
namespace {

const SequenceId kFirst(1);
const SequenceId kSecond(2);

TEST(ExpectationsTest, AHashIsExpectedUntilItsOwnerIsRemoved) {
  Expectations expectations;
  expectations.Add(kFirst, std::vector<uint64_t>{10, 11});
  EXPECT_TRUE(expectations.Contains(10));
  EXPECT_TRUE(expectations.Contains(11));
  EXPECT_FALSE(expectations.Contains(12));
  expectations.Remove(kFirst);
  EXPECT_FALSE(expectations.Contains(10));
  EXPECT_FALSE(expectations.Contains(11));
}

TEST(ExpectationsTest, TheFirstToExpectAHashOwnsIt) {
  Expectations expectations;
  expectations.Add(kFirst, std::vector<uint64_t>{10});
  expectations.Add(kSecond, std::vector<uint64_t>{10});
  expectations.Remove(kSecond);
  EXPECT_TRUE(expectations.Contains(10));
  expectations.Remove(kFirst);
  EXPECT_FALSE(expectations.Contains(10));
}

// The block of the first owner was cached, evicted and is computed again by the second. The end of
// the first owner says nothing about that.
TEST(ExpectationsTest, AFulfilledHashMayGetAnotherOwner) {
  Expectations expectations;
  expectations.Add(kFirst, std::vector<uint64_t>{10});
  expectations.Fulfil(std::vector<uint64_t>{10});
  EXPECT_FALSE(expectations.Contains(10));
  expectations.Add(kSecond, std::vector<uint64_t>{10});
  expectations.Remove(kFirst);
  EXPECT_TRUE(expectations.Contains(10));
}

}  // namespace
}  // namespace tandem::expectations_test
