#include <cstring>

#include "base/hash.h"
#include "gtest/gtest.h"
#include "transfer/media/nccl/setup.h"

namespace tandem::nccl_setup_test {
namespace {

std::array<std::byte, NcclSetup::kIdBytes> AnId() {
  std::array<std::byte, NcclSetup::kIdBytes> id{};
  for (size_t i = 0; i < id.size(); ++i) id[i] = static_cast<std::byte>(i * 7);
  return id;
}

const NcclSetup kOneOfEach[] = {{.kind = NcclSetupKind::kHello, .nccl_version = 22809},
                                {.kind = NcclSetupKind::kId,
                                 .nccl_version = 22809,
                                 .epoch = 12,
                                 .slot_bytes = 8 << 20,
                                 .id = AnId()},
                                {.kind = NcclSetupKind::kReady, .nccl_version = 22809, .epoch = 12},
                                {.kind = NcclSetupKind::kRefuse,
                                 .code = absl::StatusCode::kResourceExhausted,
                                 .nccl_version = 22809}};

TEST(NcclSetupMessage, HasOneEncoding) {
  for (const NcclSetup& setup : kOneOfEach) {
    const auto whole = EncodeNcclSetup(setup);
    EXPECT_EQ(ParseNcclSetup(whole).value_or(NcclSetup{}), setup);
    for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
      auto flipped = whole;
      flipped[bit / 8] ^= std::byte{1} << (bit % 8);
      EXPECT_EQ(ParseNcclSetup(flipped).status().code(), absl::StatusCode::kDataLoss) << bit;
    }
  }
}

TEST(NcclSetupMessage, FieldsThatCannotBeAreRefused) {
  const NcclSetup id = kOneOfEach[1];
  const auto changed = [&id](auto change) {
    NcclSetup setup = id;
    change(setup);
    return ParseNcclSetup(EncodeNcclSetup(setup)).status().code();
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(changed([](NcclSetup&) {}), absl::StatusCode::kOk);
  EXPECT_EQ(changed([](NcclSetup& setup) { setup.id = {}; }), invalid);
  EXPECT_EQ(changed([](NcclSetup& setup) { setup.epoch = 0; }), invalid);
  EXPECT_EQ(changed([](NcclSetup& setup) { setup.nccl_version = 0; }), invalid);
  EXPECT_EQ(changed([](NcclSetup& setup) { setup.slot_bytes = 0; }), invalid);
  EXPECT_EQ(changed([](NcclSetup& setup) { setup.slot_bytes = uint64_t{1} << 40; }), invalid);
  EXPECT_EQ(changed([](NcclSetup& setup) { setup.code = absl::StatusCode::kInternal; }), invalid);
  for (const int kind : {0, 5, 255}) {
    EXPECT_EQ(changed([&](NcclSetup& setup) { setup.kind = static_cast<NcclSetupKind>(kind); }),
              invalid);
  }
  // What only an id has.
  for (const auto kind : {NcclSetupKind::kHello, NcclSetupKind::kReady, NcclSetupKind::kRefuse}) {
    EXPECT_EQ(changed([&](NcclSetup& setup) { setup.kind = kind; }), invalid);
  }
}

TEST(NcclSetupMessage, AnotherVersionIsNamed) {
  auto bytes = EncodeNcclSetup(kOneOfEach[0]);
  bytes[4] = std::byte{9};
  const uint64_t hash = Hash64(std::span(bytes).first(kNcclSetupBytes - sizeof(uint64_t)));
  std::memcpy(bytes.data() + kNcclSetupBytes - sizeof(hash), &hash, sizeof(hash));
  const absl::Status status = ParseNcclSetup(bytes).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("version 9: this build speaks 1"), absl::string_view::npos);
}

TEST(NcclVersionText, ReadsBothCodings) {
  EXPECT_EQ(NcclVersionText(22809), "2.28.9");
  EXPECT_EQ(NcclVersionText(23004), "2.30.4");
  EXPECT_EQ(NcclVersionText(2708), "2.7.8");
}

}  // namespace
}  // namespace tandem::nccl_setup_test
