#include "server/services/parse_message.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/v1/cluster.pb.h"
#include "tandem/v1/inference.pb.h"

namespace tandem::parse_message_test {
namespace {

using ::testing::HasSubstr;

// One length-delimited field, by hand: protobuf's own serializer would complain.
std::string Field(int number, const std::string& bytes) {
  return std::string(1, static_cast<char>(number << 3 | 2)) +
         std::string(1, static_cast<char>(bytes.size())) + bytes;
}

TEST(ParseMessageTest, TakesWhatProtobufTakes) {
  v1::GenerateRequest sent;
  sent.set_text("z\xc3\xbcrich");
  sent.add_stop("a");
  sent.mutable_sampling()->set_seed(7);
  v1::GenerateRequest got;
  ASSERT_TRUE(ParseMessage(sent.SerializeAsString(), got).ok());
  EXPECT_EQ(got.SerializeAsString(), sent.SerializeAsString());
}

TEST(ParseMessageTest, NamesTheFieldThatIsNotUtf8) {
  v1::GenerateRequest request;
  const absl::Status text = ParseMessage(Field(1, "ab\xff"), request);
  EXPECT_TRUE(absl::IsInvalidArgument(text));
  EXPECT_THAT(std::string(text.message()), HasSubstr("text is not UTF-8: byte 2"));
  const absl::Status stop = ParseMessage(Field(1, "ab") + Field(6, "\xc0\x80"), request);
  EXPECT_THAT(std::string(stop.message()), HasSubstr("stop is not UTF-8"));
  v1::RegisterRequest joining;
  const absl::Status inside = ParseMessage(Field(13, Field(5, "bf\xff")), joining);
  EXPECT_THAT(std::string(inside.message()), HasSubstr("dtype is not UTF-8: byte 2"));
}

TEST(ParseMessageTest, OtherBytesAreRefused) {
  v1::GenerateRequest request;
  for (const std::string& bytes : {std::string("\x0a\x7f"), std::string("\xff\xff\xff"),
                                   std::string("\x12\x03\x0a\x05\x01", 5)}) {
    const absl::Status status = ParseMessage(bytes, request);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("are no tandem.v1."));
  }
}

}  // namespace
}  // namespace tandem::parse_message_test
