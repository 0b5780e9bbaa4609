#include "kvstore/kv_dump.h"

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvstore/codec/kv_codec.h"
#include "kvstore/codec/rounded.h"
#include "tests/unit/kvstore/codec/codec_data.h"

namespace tandem::kv_dump_test {
namespace {

using ::testing::HasSubstr;

constexpr ExtentShape kDumpedShape = {DType::kBF16, 2, 64, 16};
const KvDumpHeader kDumpedHeader = {.layout = {.num_layers = 2,
                                               .num_kv_heads = 2,
                                               .head_dim = 64,
                                               .block_tokens = 16,
                                               .dtype = DType::kBF16},
                                    .prompt_tokens = 45,
                                    .evicted_tokens = 20,
                                    .quality = KvQuality::kCompact,
                                    .codec = "k4v3",
                                    .request_id = "a/request"};

struct Dumped {
  std::vector<std::byte> file;
  KvParts parts;
};

// Two blocks of two layers; the last one, with 9 tokens, is as it lies in the pool.
Dumped WholeDump(const KvDumpHeader& header = kDumpedHeader) {
  Dumped dumped;
  dumped.parts.resize(2);
  std::vector<std::byte> records;
  const auto tables = std::make_shared<const CodecTables>(TablesFor(kDumpedShape, 2));
  const auto codec = NewRoundedCodec(tables, 0.4f);
  for (uint32_t layer = 0; layer < 2; ++layer) {
    const std::vector<std::byte> extent = LikeKv(kDumpedShape, layer);
    std::vector<std::byte> frame(MostFrameBytes(kDumpedShape));
    ExtentParts parts;
    frame.resize(EncodeFrame(codec.get(), kDumpedShape, {}, extent, frame, &parts).value_or(0));
    AppendKvDumpRecord({.layer = layer, .block = 0, .tokens = 16, .framed = true, .payload = frame},
                       records);
    AppendKvDumpRecord({.layer = layer, .block = 1, .tokens = 9, .payload = extent}, records);
    dumped.parts[layer].Add(parts);
    dumped.parts[layer].Add(PartsOfRawExtent(header.layout, 9));
  }
  dumped.file = MakeKvDumpHead(header, 4, records);
  dumped.file.insert(dumped.file.end(), records.begin(), records.end());
  return dumped;
}

// The file with its hash made right again, as by somebody who writes dumps that are none.
std::vector<std::byte> Forged(const std::function<void(std::vector<std::byte>& records)>& change,
                              uint32_t num_records = 4) {
  const Dumped dumped = WholeDump();
  const size_t head = kKvDumpHeaderBytes + kDumpedHeader.request_id.size();
  std::vector<std::byte> records(dumped.file.begin() + static_cast<ptrdiff_t>(head),
                                 dumped.file.end());
  change(records);
  std::vector<std::byte> file = MakeKvDumpHead(kDumpedHeader, num_records, records);
  file.insert(file.end(), records.begin(), records.end());
  return file;
}

void ExpectDamaged(const std::vector<std::byte>& file, const std::string& why) {
  const auto dump = ParseKvDump(file);
  ASSERT_FALSE(dump.ok()) << why;
  EXPECT_EQ(dump.status().code(), absl::StatusCode::kDataLoss) << dump.status();
  EXPECT_THAT(std::string(dump.status().message()), HasSubstr(why));
}

TEST(KvDumpTest, AFileSaysWhatWasSent) {
  const Dumped dumped = WholeDump();
  const auto dump = ParseKvDump(dumped.file);
  ASSERT_TRUE(dump.ok()) << dump.status();
  EXPECT_EQ(dump->header, kDumpedHeader);
  EXPECT_EQ(dump->layers, dumped.parts);
  EXPECT_EQ(dump->layers[1].blocks, 2);
  EXPECT_EQ(dump->layers[1].raw_blocks, 1);
  EXPECT_EQ(KvDumpFileBytes(dumped.file).value_or(0), dumped.file.size());
}

TEST(KvDumpTest, QuantisedPoolsAreDumpedAsTheyAre) {
  KvDumpHeader header = kDumpedHeader;
  header.layout.dtype = DType::kK6V5;
  const std::vector<std::byte> extent(static_cast<size_t>(header.layout.ExtentBytes()));
  std::vector<std::byte> records;
  AppendKvDumpRecord({.layer = 1, .block = 0, .tokens = 16, .payload = extent}, records);
  std::vector<std::byte> file = MakeKvDumpHead(header, 1, records);
  file.insert(file.end(), records.begin(), records.end());
  const auto dump = ParseKvDump(file);
  ASSERT_TRUE(dump.ok()) << dump.status();
  EXPECT_EQ(dump->layers[1].k.wire_bytes + dump->layers[1].v.wire_bytes, extent.size());
  EXPECT_GT(dump->layers[1].k.wire_bytes, dump->layers[1].v.wire_bytes) << "K has 6 bits, V 5";
}

TEST(KvDumpTest, AForeignFileIsNamedAsSuch) {
  for (const std::string text :
       {"", "TDK", "{\"json\": true}", "TDC1 is a frame of a codec alone"}) {
    const auto bytes = std::as_bytes(std::span(text));
    EXPECT_EQ(ParseKvDump(bytes).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(KvDumpTest, AnotherVersionIsRefusedWithBoth) {
  std::vector<std::byte> file = WholeDump().file;
  file[4] = std::byte{9};
  const absl::Status status = ParseKvDump(file).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("version 9: this tandem reads version 1"));
}

TEST(KvDumpTest, AFileThatIsCutOffOrLongerSaysSo) {
  std::vector<std::byte> file = WholeDump().file;
  ExpectDamaged({file.begin(), file.begin() + 40}, "within its header");
  for (size_t size = kKvDumpHeaderBytes; size < file.size(); size += 101) {
    ExpectDamaged({file.begin(), file.begin() + static_cast<ptrdiff_t>(size)}, "cut off");
  }
  file.push_back({});
  ExpectDamaged(file, "its header says");
}

TEST(KvDumpTest, EveryFlippedByteIsSeen) {
  const std::vector<std::byte> file = WholeDump().file;
  for (size_t at = 0; at < file.size(); at += at < 200 ? 1 : 37) {
    std::vector<std::byte> damaged = file;
    damaged[at] ^= std::byte{0x10};
    EXPECT_FALSE(ParseKvDump(damaged).ok()) << at;
  }
}

// The checksum is right, so what the records say is all that can tell.
TEST(KvDumpTest, ARecordThatNoEngineWritesIsNamed) {
  const auto set = [](size_t at, uint32_t value) {
    return [at, value](std::vector<std::byte>& records) {
      std::memcpy(records.data() + at, &value, sizeof(value));
    };
  };
  ExpectDamaged(Forged(set(0, 7 | 1u << 16)), "record 0 of 4: layer 7");
  ExpectDamaged(Forged(set(4, 2)), "record 0 of 4: layer 0, block 2");
  ExpectDamaged(Forged(set(8, 17)), "block 0 with 17 tokens");
  ExpectDamaged(Forged(set(8, 0)), "block 0 with 0 tokens");
  ExpectDamaged(Forged(set(8, 15)), "another shape");
  ExpectDamaged(Forged(set(12, 0xffffffff)), "4294967295 bytes, of which the file has");
  ExpectDamaged(Forged(set(kKvDumpRecordBytes, 0)), "a KV frame with magic 00000000");
  ExpectDamaged(Forged(set(0, 0)), "an extent of");  // a frame that is said to be none
  ExpectDamaged(Forged([](auto&) {}, 5), "record 4 of 5: the file has no such record");
  ExpectDamaged(Forged([](auto&) {}, 3), "follow its last record");
}

TEST(KvDumpTest, AHeaderThatNoEngineWritesIsRefused) {
  KvDumpHeader header = kDumpedHeader;
  header.layout.block_tokens = 17;
  ExpectDamaged(WholeDump(header).file, "block_tokens=17");
  header = kDumpedHeader;
  header.evicted_tokens = 46;
  ExpectDamaged(WholeDump(header).file, "46 of 45 tokens");
  header = kDumpedHeader;
  header.codec = "\x1b[31m";
  ExpectDamaged(WholeDump(header).file, "a name that none has");
  EXPECT_FALSE(IsKvDumpId("two words"));
  EXPECT_FALSE(IsKvDumpId(""));
  EXPECT_FALSE(IsKvDumpId(std::string(129, 'a')));
  EXPECT_TRUE(IsKvDumpId(std::string(128, 'a')));
}

}  // namespace
}  // namespace tandem::kv_dump_test
