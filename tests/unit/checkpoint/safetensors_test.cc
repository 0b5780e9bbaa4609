#include "model/checkpoint/safetensors.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/checkpoint/checkpoint_files.h"

namespace tandem::safetensors_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

absl::StatusOr<std::vector<SafetensorsEntry>> Parse(std::string_view file) {
  return ParseSafetensorsHeader(std::as_bytes(std::span(file)), file.size());
}

absl::Status Refusal(std::string_view header, size_t data_bytes) {
  return Parse(SafetensorsFile(header, data_bytes)).status();
}

#define EXPECT_REFUSED(header, data_bytes, text)                            \
  do {                                                                      \
    const absl::Status status = Refusal(header, data_bytes);                \
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status; \
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));            \
  } while (false)

TEST(SafetensorsTest, ReadsEntriesInFileOrder) {
  const std::string header =
      R"({"__metadata__": {"format": "pt"},)"
      R"( "b": {"dtype": "F32", "shape": [2, 3], "data_offsets": [4, 28]},)"
      R"( "a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]},)"
      R"( "scalar": {"dtype": "F16", "shape": [], "data_offsets": [28, 30]},)"
      R"( "empty": {"dtype": "F16", "shape": [0, 7], "data_offsets": [30, 30]}} )";
  const auto entries = Parse(SafetensorsFile(header, 30));
  ASSERT_TRUE(entries.ok()) << entries.status();
  ASSERT_EQ(entries->size(), 4u);
  const uint64_t data = 8 + header.size();
  EXPECT_EQ((*entries)[0].name, "a");
  EXPECT_EQ((*entries)[0].dtype, DType::kBF16);
  EXPECT_EQ((*entries)[0].begin, data);
  EXPECT_EQ((*entries)[1].name, "b");
  EXPECT_EQ((*entries)[1].dtype, DType::kF32);
  EXPECT_THAT((*entries)[1].shape, ElementsAre(2, 3));
  EXPECT_EQ((*entries)[1].begin, data + 4);
  EXPECT_EQ((*entries)[1].end, data + 28);
  EXPECT_THAT((*entries)[2].shape, IsEmpty());
  EXPECT_EQ((*entries)[3].begin, (*entries)[3].end);
}

TEST(SafetensorsTest, RefusesFilesTooShortForTheirHeader) {
  EXPECT_THAT(std::string(Parse("").status().message()), HasSubstr("0 bytes long"));
  EXPECT_THAT(std::string(Parse("1234567").status().message()), HasSubstr("7 bytes long"));
  const std::string file = SafetensorsFile("{}", 0);
  EXPECT_THAT(std::string(Parse(file.substr(0, 9)).status().message()), HasSubstr("truncated"));
  EXPECT_THAT(std::string(Parse(std::string(16, '\xff')).status().message()),
              HasSubstr("header length 18446744073709551615"));
}

TEST(SafetensorsTest, RefusesWhatIsNotAnObjectOfObjects) {
  EXPECT_REFUSED("[]", 0, "an array, not an object");
  EXPECT_REFUSED("{", 0, "not JSON");
  EXPECT_REFUSED(R"({"a": 3})", 0, "tensor 'a': 3, not an object");
  EXPECT_REFUSED("{\"a\xff\": 3}", 0, "not JSON");
  EXPECT_REFUSED(R"({"a": )" + std::string(2000, '['), 0, "nested deeper than 32");
}

TEST(SafetensorsTest, RefusesDuplicateNames) {
  EXPECT_REFUSED(R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},)"
                 R"( "a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})",
                 8, "'a' stands twice");
}

TEST(SafetensorsTest, RefusesShapesAndOffsetsThatDoNotAgree) {
  EXPECT_REFUSED(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}})", 4,
                 "4 bytes of data, but its shape [2] of f32");
  EXPECT_REFUSED(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}})", 8,
                 "data_offsets");
  EXPECT_REFUSED(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8, 8]}})", 8,
                 "data_offsets");
  EXPECT_REFUSED(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [-8, 0]}})", 8,
                 "data_offsets");
  EXPECT_REFUSED(R"({"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}})", 8, "shape");
  EXPECT_REFUSED(R"({"a": {"dtype": "F32", "shape": [2.0], "data_offsets": [0, 8]}})", 8, "shape");
  EXPECT_REFUSED(R"({"a": {"dtype": "F32", "data_offsets": [0, 8]}})", 8, "shape");
  EXPECT_REFUSED(R"({"a": {"dtype": "F32", "shape": [1,1,1,1,1,1,1,1,1], "data_offsets": [0, 4]}})",
                 4, "at most 8");
  EXPECT_REFUSED(R"({"a": {"shape": [2], "data_offsets": [0, 8]}})", 8, "dtype is missing");
}

// 2^62 * 2^62 * 4 is 0 modulo 2^64: a product that wraps would match an empty tensor.
TEST(SafetensorsTest, RefusesShapesWhoseProductOverflows) {
  EXPECT_REFUSED(R"({"a": {"dtype": "F32", "shape": [4611686018427387904, 4611686018427387904],)"
                 R"( "data_offsets": [0, 0]}})",
                 0, "0 bytes of data");
  EXPECT_REFUSED(R"({"a": {"dtype": "F32", "shape": [18446744073709551615],)"
                 R"( "data_offsets": [0, 0]}})",
                 0, "shape");
}

TEST(SafetensorsTest, RefusesTruncatedOverlappingAndLooseData) {
  const std::string two = R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},)"
                          R"( "b": {"dtype": "F32", "shape": [2], "data_offsets": )";
  EXPECT_REFUSED(two + "[8, 16]}}", 15, "tensor 'b': its data ends at 16, but only 15");
  EXPECT_REFUSED(two + "[4, 12]}}", 12, "another ends");
  EXPECT_REFUSED(two + "[12, 20]}}", 20, "data goes on");
  EXPECT_REFUSED(two + "[8, 16]}}", 17, "the file has");
}

TEST(SafetensorsTest, RefusesDtypesByName) {
  for (const char* dtype : {"I64", "F8_E5M2", "F64", "BOOL", "bf16"}) {
    const absl::Status status = Refusal(std::string(R"({"a": {"dtype": ")") + dtype +
                                            R"(", "shape": [1], "data_offsets": [0, 8]}})",
                                        8);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(std::string("tensor 'a': dtype '") + dtype));
  }
}

#undef EXPECT_REFUSED

}  // namespace
}  // namespace tandem::safetensors_test
