// Frame headers and the reader of a data connection, over foreign bytes. The first byte chooses the
// size of the pieces in which the rest arrives.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "base/status.h"
#include "transfer/wire/frame.h"
#include "transfer/wire/frame_reader.h"

namespace tandem {
namespace {

constexpr uint32_t kMaxLanding = 1 << 20;  // larger payloads are refused, as a receiver may

// Checks that the reader keeps the order that its handler relies on.
class CheckingHandler final : public FrameHandler {
 public:
  absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader& header) override {
    TANDEM_CHECK(!landing_, "a payload was prepared before the one before had landed");
    TANDEM_CHECK(header.payload_bytes > 0, "an empty payload");
    if (header.payload_bytes > kMaxLanding) return ResourceExhausted("too large");
    landing_ = true;
    place_.resize(header.payload_bytes);
    return std::span<std::byte>(place_);
  }
  void Landed(const FrameHeader& header, const absl::Status&) override {
    TANDEM_CHECK(landing_ && header.payload_bytes == place_.size(), "landed without a place");
    landing_ = false;
  }
  absl::Status Control(const FrameHeader& header) override {
    TANDEM_CHECK(header.type != FrameType::kData, "a data frame is not for control");
    TANDEM_CHECK(!landing_, "a frame inside a payload");
    return absl::OkStatus();
  }
  bool landing() const { return landing_; }

 private:
  std::vector<std::byte> place_;
  bool landing_ = false;
};

void ParseOneHeader(std::span<const std::byte> bytes) {
  if (bytes.size() < kFrameHeaderBytes) return;
  const auto header_bytes = bytes.first<kFrameHeaderBytes>();
  const auto header = ParseFrameHeader(header_bytes);
  if (!header.ok()) return;
  TANDEM_CHECK(std::ranges::equal(EncodeFrameHeader(*header), header_bytes),
               "a header has a second encoding");
}

// Gives every header that the reader will come to a right magic, version and checksum: mutations
// break these nearly always, and what lies behind them shall be reached too.
std::vector<std::byte> Resealed(std::span<const std::byte> bytes) {
  std::vector<std::byte> sealed(bytes.begin(), bytes.end());
  for (size_t at = 0; at + kFrameHeaderBytes <= sealed.size();) {
    std::byte* header = sealed.data() + at;
    std::memcpy(header, &kFrameMagic, sizeof(kFrameMagic));
    std::memcpy(header + 4, &kFrameVersion, sizeof(kFrameVersion));
    const uint64_t hash = Hash64({header, kFrameHeaderBytes - sizeof(uint64_t)});
    std::memcpy(header + kFrameHeaderBytes - sizeof(hash), &hash, sizeof(hash));
    uint32_t payload_bytes = 0;
    std::memcpy(&payload_bytes, header + 32, sizeof(payload_bytes));
    at += kFrameHeaderBytes + payload_bytes;
  }
  return sealed;
}

void ReadStream(std::span<const std::byte> bytes, size_t piece) {
  CheckingHandler handler;
  FrameReader reader(handler);
  absl::Status status;
  while (status.ok() && !bytes.empty()) {
    const size_t size = std::min(piece, bytes.size());
    status = reader.Feed(bytes.first(size));
    bytes = bytes.subspan(size);
  }
  reader.Stop(Unavailable("the end of the input"));
  TANDEM_CHECK(!handler.landing(), "a place was not given back");
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data, size));
  const size_t piece = 1 + std::to_integer<size_t>(bytes[0]) * 3;
  const auto sealed = Resealed(bytes.subspan(1));
  ParseOneHeader(bytes.subspan(1));
  ParseOneHeader(sealed);
  ReadStream(bytes.subspan(1), piece);
  ReadStream(sealed, piece);
  return 0;
}
