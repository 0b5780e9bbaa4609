#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>

#include "base/hash.h"
#include "tests/support/ops_fixture.h"

// Stream::CopyAll and HashAll: what lands, what stays as it was, and the hashes, against Hash64.

namespace tandem::device_extents_test {
namespace {

constexpr auto kPoison = std::byte{0xa5};

// Bytes [from, from + bytes) of the source, to be copied to `to` of the target.
struct Extent {
  size_t from;
  size_t to;
  size_t bytes;
};

class DeviceExtentsTest : public OpsTest {
 protected:
  std::vector<std::byte> RandomBytes(size_t size) {
    std::vector<uint64_t> words(size / sizeof(uint64_t) + 1);
    std::ranges::generate(words, std::ref(rng_));
    const auto* bytes = reinterpret_cast<const std::byte*>(words.data());
    return {bytes, bytes + size};
  }
  size_t Below(size_t bound) { return rng_() % bound; }

  // Extents of these lengths, one behind the other in an order of their own on each side, with at
  // least a byte in between. They begin on multiples of `alignment`, or `off` bytes behind those.
  std::vector<Extent> Spread(const std::vector<size_t>& lengths, size_t alignment, size_t off) {
    std::vector<Extent> extents;
    for (size_t length : lengths) extents.push_back({0, 0, length});
    for (size_t Extent::*place : {&Extent::from, &Extent::to}) {
      std::vector<size_t> order(extents.size());
      std::iota(order.begin(), order.end(), 0);
      std::ranges::shuffle(order, rng_);
      size_t at = off;
      for (size_t i : order) {
        extents[i].*place = at;
        at += (extents[i].bytes / alignment + 1 + Below(3)) * alignment;
      }
    }
    return extents;
  }
  static size_t End(const std::vector<Extent>& extents, size_t Extent::*place) {
    size_t end = 0;
    for (const Extent& extent : extents) end = std::max(end, extent.*place + extent.bytes);
    return end;
  }

  DeviceBuffer Hashes(size_t count) {
    return *device().AllocateHost(std::max<size_t>(count, 1) * sizeof(uint64_t));
  }
  static std::span<uint64_t> Words(const DeviceBuffer& buffer, size_t count) {
    return {reinterpret_cast<uint64_t*>(buffer.data()), count};
  }

  void ExpectCopied(const std::vector<Extent>& extents) {
    const std::vector<std::byte> source = RandomBytes(End(extents, &Extent::from) + 1);
    std::vector<std::byte> expected(End(extents, &Extent::to) + 1, kPoison);
    const DeviceArray from = ToDevice(source);
    const DeviceArray to = ToDevice(expected);
    const DeviceBuffer hashes = Hashes(extents.size());
    std::vector<ExtentCopy> copies;
    for (const Extent& extent : extents) {
      copies.push_back({{static_cast<std::byte*>(to.data()) + extent.to, extent.bytes},
                        {static_cast<std::byte*>(from.data()) + extent.from, extent.bytes}});
    }
    const absl::Status status = stream().CopyAll(copies, Words(hashes, extents.size()));
    ASSERT_TRUE(status.ok()) << status;
    copies.clear();
    const std::vector<std::byte> written = to.Download<std::byte>();
    for (size_t i = 0; i < extents.size(); ++i) {
      const Extent& extent = extents[i];
      const std::span sent = std::span(source).subspan(extent.from, extent.bytes);
      std::ranges::copy(sent, expected.begin() + static_cast<ptrdiff_t>(extent.to));
      ASSERT_EQ(Words(hashes, extents.size())[i], Hash64(sent))
          << "extent " << i << " of " << extent.bytes << " bytes from " << extent.from << " to "
          << extent.to;
    }
    const auto [wrong, right] = std::ranges::mismatch(written, expected);
    EXPECT_EQ(wrong, written.end()) << "byte " << wrong - written.begin();
  }

  void ExpectHashed(const std::vector<Extent>& extents) {
    const std::vector<std::byte> source = RandomBytes(End(extents, &Extent::from) + 1);
    const DeviceArray from = ToDevice(source);
    const DeviceBuffer hashes = Hashes(extents.size());
    std::vector<std::span<const std::byte>> spans;
    for (const Extent& extent : extents) {
      spans.emplace_back(static_cast<std::byte*>(from.data()) + extent.from, extent.bytes);
    }
    const absl::Status status = stream().HashAll(spans, Words(hashes, extents.size()));
    ASSERT_TRUE(status.ok()) << status;
    spans.clear();
    EXPECT_EQ(from.Download<std::byte>(), source);
    for (size_t i = 0; i < extents.size(); ++i) {
      const Extent& extent = extents[i];
      ASSERT_EQ(Words(hashes, extents.size())[i],
                Hash64(std::span(source).subspan(extent.from, extent.bytes)))
          << "extent " << i << " of " << extent.bytes << " bytes from " << extent.from;
    }
  }
};

std::vector<size_t> UpTo(size_t last) {
  std::vector<size_t> lengths(last + 1);
  std::iota(lengths.begin(), lengths.end(), 0);
  return lengths;
}

// Every short form of the hash, every end of a stripe and of a block, and more than a launch takes.
// Both ways, as the two ends of a relay through the host do.
TEST_P(DeviceExtentsTest, RegisteredMemoryOfTheHostIsReached) {
  const std::vector<std::byte> content = RandomBytes(100'000);
  std::vector<std::byte> relay(content.size());
  const DeviceArray from = ToDevice(content);
  const DeviceArray to = ToDevice(std::vector<std::byte>(content.size()));
  const absl::StatusOr<DeviceBuffer> registered = device().RegisterHost(relay);
  ASSERT_TRUE(registered.ok()) << registered.status();
  ASSERT_EQ(registered->data(), relay.data());
  const DeviceBuffer hashes = Hashes(2);
  const auto whole = [&](const DeviceArray& array) {
    return std::span(static_cast<std::byte*>(array.data()), content.size());
  };
  const ExtentCopy out = {registered->bytes(), whole(from)};
  const ExtentCopy in = {whole(to), registered->bytes()};
  ASSERT_TRUE(stream().CopyAll({&out, 1}, Words(hashes, 2).first(1)).ok());
  ASSERT_TRUE(stream().Synchronize().ok());
  EXPECT_EQ(relay, content);
  ASSERT_TRUE(stream().CopyAll({&in, 1}, Words(hashes, 2).last(1)).ok());
  EXPECT_EQ(to.Download<std::byte>(), content);
  EXPECT_EQ(Words(hashes, 2)[0], Hash64(content));
  EXPECT_EQ(Words(hashes, 2)[1], Hash64(content));
}

TEST_P(DeviceExtentsTest, EveryLengthIsCopiedAndHashed) {
  ExpectCopied(Spread(UpTo(1100), 16, 0));
  ExpectHashed(Spread(UpTo(1100), 16, 0));
}

TEST_P(DeviceExtentsTest, PlacesMayBeginAnywhere) {
  ExpectCopied(Spread(UpTo(400), 1, 0));
  ExpectHashed(Spread(UpTo(400), 1, 0));
  for (size_t off : {1, 2, 4, 8, 15}) {
    SCOPED_TRACE(off);
    ExpectCopied(Spread({241, 1024, 1025, 4096, 9999}, 16, off));
  }
}

TEST_P(DeviceExtentsTest, OneSideMayBeginAnywhere) {
  std::vector<Extent> extents;
  for (size_t i = 0; i < 16; ++i) extents.push_back({i * 8192 + i, i * 8192, 5000 + i});
  ExpectCopied(extents);
  for (Extent& extent : extents) std::swap(extent.from, extent.to);
  ExpectCopied(extents);
}

// Where what a block of threads does in one go ends, and a byte to either side.
TEST_P(DeviceExtentsTest, LengthsAroundWhatIsMovedInOneGo) {
  std::vector<size_t> lengths;
  for (size_t middle : {2 << 10, 4 << 10, 8 << 10, 16 << 10, 64 << 10, 128 << 10}) {
    for (size_t length : {middle - 64, middle - 16, middle - 1, middle, middle + 1, middle + 16,
                          middle + 64, middle + 65}) {
      lengths.push_back(length);
    }
  }
  ExpectCopied(Spread(lengths, 16, 0));
  ExpectCopied(Spread(lengths, 64, 0));
  ExpectHashed(Spread(lengths, 16, 0));
}

TEST_P(DeviceExtentsTest, LongAndShortOnesTogether) {
  const auto longest = static_cast<size_t>(Size(3 << 20, 2 << 20));
  std::vector<size_t> lengths = {longest, 1, 0};
  for (int i = 0; i < 8; ++i) lengths.push_back(Below(longest));
  for (int i = 0; i < 20; ++i) lengths.push_back(Below(5000));
  ExpectCopied(Spread(lengths, 16, 0));
  ExpectCopied(Spread(lengths, 1, 3));
  ExpectHashed(Spread(lengths, 16, 0));
}

TEST_P(DeviceExtentsTest, ManyOfOneSize) {
  const auto count = static_cast<size_t>(Size(1000, 400));
  ExpectCopied(Spread(std::vector<size_t>(count, 8 << 10), 16, 0));
  ExpectHashed(Spread(std::vector<size_t>(count, 8 << 10), 16, 0));
}

TEST_P(DeviceExtentsTest, CallsRunInTheOrderOfTheStream) {
  const std::vector<std::byte> source = RandomBytes(5000);
  const DeviceArray a = ToDevice(source);
  const DeviceArray b = ToDevice(std::vector<std::byte>(source.size()));
  const DeviceArray c = ToDevice(std::vector<std::byte>(source.size()));
  const auto bytes = [](const DeviceArray& array) {
    return std::span(static_cast<std::byte*>(array.data()), array.size_bytes());
  };
  const DeviceBuffer hashes = Hashes(3);
  const std::span<uint64_t> words = Words(hashes, 3);
  const ExtentCopy first = {bytes(b), bytes(a)};
  const ExtentCopy second = {bytes(c), bytes(b)};
  const std::span<const std::byte> third = bytes(c);
  ASSERT_TRUE(stream().CopyAll({&first, 1}, words.subspan(0, 1)).ok());
  ASSERT_TRUE(stream().CopyAll({&second, 1}, words.subspan(1, 1)).ok());
  ASSERT_TRUE(stream().HashAll({&third, 1}, words.subspan(2, 1)).ok());
  EXPECT_EQ(c.Download<std::byte>(), source);
  for (uint64_t word : words) EXPECT_EQ(word, Hash64(source));
}

TEST_P(DeviceExtentsTest, NothingIsDoneWhereSizesDiffer) {
  const std::vector<std::byte> poison(64, kPoison);
  const DeviceArray from = ToDevice(RandomBytes(64));
  const DeviceArray to = ToDevice(poison);
  const auto source = std::span(static_cast<const std::byte*>(from.data()), 64);
  const auto target = std::span(static_cast<std::byte*>(to.data()), 64);
  const DeviceBuffer hashes = Hashes(3);
  const std::array<ExtentCopy, 2> unequal = {ExtentCopy{target.first(32), source.first(32)},
                                             ExtentCopy{target.last(9), source.last(10)}};
  const absl::Status sizes = stream().CopyAll(unequal, Words(hashes, 2));
  EXPECT_EQ(sizes.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(sizes.message().find("10 bytes into 9"), std::string::npos) << sizes;
  const std::array<ExtentCopy, 2> equal = {ExtentCopy{target.first(32), source.first(32)},
                                           ExtentCopy{target.last(9), source.last(9)}};
  const std::array<std::span<const std::byte>, 2> spans = {source, source};
  for (size_t room : {0, 1, 3}) {
    for (const absl::Status& status : {stream().CopyAll(equal, Words(hashes, room)),
                                       stream().HashAll(spans, Words(hashes, room))}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << room;
    }
  }
  EXPECT_EQ(to.Download<std::byte>(), poison);
}

// The engine's thread records its graphs while those of transports and of the host tier are at
// work.
TEST_P(DeviceExtentsTest, OtherThreadsGoOnWhileOneRecords) {
  if (!device().can_record_graphs()) GTEST_SKIP() << device().name() << " records nothing";
  const std::vector<std::byte> content = RandomBytes(100'000);
  const auto beside = [&] {
    const std::unique_ptr<Stream> own = *device().NewStream();
    std::vector<std::byte> relay(content);
    const DeviceBuffer registered = *device().RegisterHost(relay);
    const DeviceBuffer memory = *device().Allocate(content.size());
    const DeviceBuffer hashes = Hashes(1);
    const ExtentCopy copy = {memory.bytes(), registered.bytes()};
    EXPECT_TRUE(own->CopyAll({&copy, 1}, Words(hashes, 1)).ok());
    const std::unique_ptr<Event> copied = *own->Record();
    copied->Done();
    EXPECT_TRUE(copied->Synchronize().ok());
    EXPECT_TRUE(own->Copy(relay, memory.bytes()).ok());
    EXPECT_TRUE(own->Synchronize().ok());
    EXPECT_TRUE(device().Memory().ok());
    EXPECT_EQ(relay, content);
    EXPECT_EQ(Words(hashes, 1)[0], Hash64(content));
  };
  const DeviceArray from = ToDevice(content);
  const DeviceArray to = ToDevice(std::vector<std::byte>(content.size()));
  const auto whole = [&](const DeviceArray& array) {
    return std::span(static_cast<std::byte*>(array.data()), content.size());
  };
  ASSERT_TRUE(stream().BeginRecording().ok());
  std::thread(beside).join();
  EXPECT_TRUE(stream().Copy(whole(to), whole(from)).ok());
  const absl::StatusOr<std::unique_ptr<Graph>> graph = stream().EndRecording();
  ASSERT_TRUE(graph.ok()) << graph.status();
  ASSERT_TRUE(stream().Launch(**graph).ok());
  EXPECT_EQ(to.Download<std::byte>(), content);
}

TEST_P(DeviceExtentsTest, NothingToDoIsDone) {
  EXPECT_TRUE(stream().CopyAll({}, {}).ok());
  EXPECT_TRUE(stream().HashAll({}, {}).ok());
}

TANDEM_INSTANTIATE_OPS_TEST(DeviceExtentsTest);

}  // namespace
}  // namespace tandem::device_extents_test
