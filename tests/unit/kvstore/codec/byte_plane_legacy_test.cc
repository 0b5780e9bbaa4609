#include "kvstore/codec/byte_plane_legacy.h"

#include <initializer_list>
#include <vector>

#include "gtest/gtest.h"

namespace tandem::byte_plane_legacy_test {
namespace {

using Blob = std::vector<std::byte>;

Blob BytesOf(std::initializer_list<int> values) {
  Blob bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

// Written by hand from the format of docs/kv_codecs.md, like all blobs here.
const Blob& FourWords() {
  static const Blob blob =
      BytesOf({4,   0,   0,  0,                      // 4 floats
               1,   0,   4,  0, 0,   0, 5, 0, 0, 0,  // lo: delta, RLE, 4 bytes in 5
               3,   250, 10, 0, 255,                 // literals 250, +10, +0, -1
               2,   0,   4,  0, 0,   0, 2, 0, 0, 0,  // hi: xor, RLE, 4 bytes in 2
               128, 0x3c});                          // 4 times 3c
  return blob;
}

bool Decodes(const Blob& blob, size_t most_bytes = 1000) {
  return DecodeLegacyBlob(LegacyFloats::kTwoBytes, blob, most_bytes).ok();
}

TEST(LegacyBlobTest, TwoByteFloatsAreDecoded) {
  const auto decoded = DecodeLegacyBlob(LegacyFloats::kTwoBytes, FourWords(), 8);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, BytesOf({250, 0x3c, 4, 0, 4, 0x3c, 3, 0}));
}

TEST(LegacyBlobTest, FourByteFloatsAreDecoded) {
  const Blob blob = BytesOf({5,   0,    0,   0,                    // 5 floats
                             0,   0,    5,   0, 0, 0, 6, 0, 0, 0,  // raw, RLE
                             4,   1,    2,   3, 4, 5,              //
                             1,   0,    5,   0, 0, 0, 4, 0, 0, 0,  // delta, RLE
                             0,   9,    128, 1,                    // 9, then 4 times +1
                             2,   0,    5,   0, 0, 0, 2, 0, 0, 0,  // xor, RLE
                             129, 0xff,                            // 5 times ff
                             0,   0,    5,   0, 0, 0, 2, 0, 0, 0, 129, 0x40});  // raw: 5 times 40
  const auto decoded = DecodeLegacyBlob(LegacyFloats::kFourBytes, blob, 20);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, BytesOf({1,    9,    0xff, 0x40, 2, 10,   0, 0x40, 3,    11,
                               0xff, 0x40, 4,    12,   0, 0x40, 5, 13,   0xff, 0x40}));
}

// The lo lane is a zstd frame (RFC 8878) of one raw block, the hi lane one of an RLE block.
TEST(LegacyBlobTest, LanesOfZstdAreDecoded) {
  const Blob blob = BytesOf({3,
                             0,
                             0,
                             0,  //
                             1,
                             1,
                             3,
                             0,
                             0,
                             0,
                             12,
                             0,
                             0,
                             0,  // delta, zstd
                             0x28,
                             0xb5,
                             0x2f,
                             0xfd,
                             0x20,
                             3,  // magic, one segment of 3
                             (3 << 3) | 1,
                             0,
                             0,
                             7,
                             1,
                             1,  // last block, raw, 3 bytes
                             0,
                             1,
                             3,
                             0,
                             0,
                             0,
                             10,
                             0,
                             0,
                             0,  // raw, zstd
                             0x28,
                             0xb5,
                             0x2f,
                             0xfd,
                             0x20,
                             3,  //
                             (3 << 3) | 2 | 1,
                             0,
                             0,
                             0x55});  // last block, 3 times 55
  const auto decoded = DecodeLegacyBlob(LegacyFloats::kTwoBytes, blob, 6);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, BytesOf({7, 0x55, 8, 0x55, 9, 0x55}));
}

TEST(LegacyBlobTest, AnEmptyBlobHasNoFloats) {
  const Blob empty(24);
  const auto decoded = DecodeLegacyBlob(LegacyFloats::kTwoBytes, empty, 0);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_TRUE(decoded->empty());
  Blob with_payload = empty;
  with_payload[10] = std::byte{2};  // the payload of lo
  with_payload.insert(with_payload.begin() + 14, {std::byte{0}, std::byte{1}});
  EXPECT_FALSE(Decodes(with_payload));
}

TEST(LegacyBlobTest, MoreThanIsExpectedIsRefused) {
  EXPECT_TRUE(Decodes(FourWords(), 8));
  EXPECT_EQ(DecodeLegacyBlob(LegacyFloats::kTwoBytes, FourWords(), 7).status().code(),
            absl::StatusCode::kDataLoss);
  // Frames that agree on 4 GiB each, in a few bytes.
  Blob large = FourWords();
  for (const size_t at : {0, 6, 21}) {
    for (size_t i = 0; i < 4; ++i) large[at + i] = std::byte{0xff};
  }
  EXPECT_FALSE(Decodes(large));
}

TEST(LegacyBlobTest, DamagedSizesAndModesAreRefused) {
  const Blob& blob = FourWords();
  ASSERT_TRUE(Decodes(blob));
  for (size_t size = 0; size < blob.size(); ++size) {
    EXPECT_FALSE(Decodes(Blob(blob.begin(), blob.begin() + static_cast<ptrdiff_t>(size)))) << size;
  }
  Blob longer = blob;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(Decodes(longer));
  // The number of floats, and of each lane its sizes.
  for (const size_t at : {0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 12, 13, 21, 22, 25, 26}) {
    Blob damaged = blob;
    damaged[at] ^= std::byte{1};
    EXPECT_FALSE(Decodes(damaged)) << at;
  }
  // A predictor of ours, a back-end that there is not, and a lane that is no zstd frame.
  for (const auto& [at, value] : {std::pair(4, 3), {5, 2}, {5, 1}, {19, 3}, {20, 2}, {20, 1}}) {
    Blob damaged = blob;
    damaged[static_cast<size_t>(at)] = static_cast<std::byte>(value);
    EXPECT_FALSE(Decodes(damaged)) << at << ' ' << value;
  }
}

// Runs and literals that are longer than what is left of the lane or of the payload.
TEST(LegacyBlobTest, RleBeyondItsLaneIsRefused) {
  for (const int control : {4, 127, 2, 128, 255}) {
    Blob damaged = FourWords();
    damaged[14] = static_cast<std::byte>(control);  // the literals of lo
    EXPECT_FALSE(Decodes(damaged)) << control;
  }
  for (const int control : {0, 1, 127, 129, 255}) {
    Blob damaged = FourWords();
    damaged[29] = static_cast<std::byte>(control);  // the run of hi
    EXPECT_FALSE(Decodes(damaged)) << control;
  }
}

}  // namespace
}  // namespace tandem::byte_plane_legacy_test
