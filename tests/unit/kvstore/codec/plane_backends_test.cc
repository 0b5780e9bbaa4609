#include "kvstore/codec/plane_backends.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "gtest/gtest.h"
#include "tests/unit/kvstore/codec/plane_data.h"

namespace tandem::codec::plane_backends_test {
namespace {

using plane_data::BytesOf;
using plane_data::Payload;
using plane_data::Plane;
using plane_data::RandomPlane;

Payload Rle(const Plane& plane) {
  Payload out(2 * plane.size() + 1);
  out.resize(EncodeRle(plane, out).value_or(0));
  return out;
}

TEST(RleTest, RunsAreFourToAHundredAndThirtyOneBytes) {
  EXPECT_EQ(Rle(Plane(3, 7)), BytesOf({2, 7, 7, 7}));
  EXPECT_EQ(Rle(Plane(4, 7)), BytesOf({128, 7}));
  EXPECT_EQ(Rle(Plane(131, 7)), BytesOf({255, 7}));
  EXPECT_EQ(Rle(Plane(132, 7)), BytesOf({255, 7, 0, 7}));
  EXPECT_EQ(Rle(Plane(135, 7)), BytesOf({255, 7, 128, 7}));
  EXPECT_EQ(Rle({1, 2, 2, 2, 3, 3, 3, 3, 3, 4}), BytesOf({3, 1, 2, 2, 2, 129, 3, 0, 4}));
}

TEST(RleTest, LiteralsAreUpToAHundredAndTwentyEightBytes) {
  Plane plane;
  for (int i = 0; i < 129; ++i) plane.push_back(static_cast<uint8_t>(i));
  const Payload of_129 = Rle(plane);
  plane.pop_back();
  const Payload of_128 = Rle(plane);
  ASSERT_EQ(of_128.size(), 129u);
  EXPECT_EQ(of_128[0], std::byte{127});
  ASSERT_EQ(of_129.size(), 131u);
  EXPECT_EQ(of_129[0], std::byte{127});
  EXPECT_EQ(of_129[129], std::byte{0});
  EXPECT_EQ(of_129[130], std::byte{128});
}

TEST(RleTest, EveryLengthOfRunAndLiteralsComesBack) {
  for (size_t run = 1; run <= 270; ++run) {
    for (const size_t literals : {0, 1, 127, 128, 129, 257}) {
      Plane plane(run, 9);
      for (size_t i = 0; i < literals; ++i) plane.push_back(static_cast<uint8_t>(i));
      plane.insert(plane.end(), run, 200);
      Plane back(plane.size());
      ASSERT_TRUE(DecodePlane(Backend::kRle, Rle(plane), back)) << run << ' ' << literals;
      ASSERT_EQ(back, plane) << run << ' ' << literals;
    }
  }
}

TEST(RleTest, WhatDoesNotFitIsNotWritten) {
  const Plane plane = RandomPlane(300, 1);
  const size_t needed = Rle(plane).size();
  for (size_t size = 0; size < needed; ++size) {
    Payload out(size);
    EXPECT_FALSE(EncodeRle(plane, out).has_value()) << size;
  }
  Payload out(needed);
  EXPECT_EQ(EncodeRle(plane, out), needed);
}

// A plane of other than the expected size, or a payload that ends too early or goes on.
TEST(PlaneBackendsTest, OnlyExactlyThePlaneIsDecoded) {
  const Plane plane(200, 3);
  Payload zstd(MostZstdBytes(plane.size()));
  zstd.resize(EncodeZstd(plane, zstd));
  const Payload rle = Rle(plane);
  const auto decodes = [](Backend backend, std::span<const std::byte> payload, size_t size) {
    Plane back(size);
    return DecodePlane(backend, payload, back);
  };
  for (const auto& [backend, payload] : {std::pair(Backend::kRle, rle), {Backend::kZstd, zstd}}) {
    EXPECT_TRUE(decodes(backend, payload, 200));
    EXPECT_FALSE(decodes(backend, payload, 199));
    EXPECT_FALSE(decodes(backend, payload, 201));
    EXPECT_FALSE(decodes(backend, payload, 400));
    for (size_t size = 0; size < payload.size(); ++size) {
      EXPECT_FALSE(decodes(backend, std::span(payload).first(size), 200)) << size;
    }
    Payload twice = payload;
    twice.insert(twice.end(), payload.begin(), payload.end());
    EXPECT_FALSE(decodes(backend, twice, 200));
    EXPECT_EQ(decodes(backend, twice, 400), backend == Backend::kRle) << "one zstd frame alone";
  }
}

}  // namespace
}  // namespace tandem::codec::plane_backends_test
