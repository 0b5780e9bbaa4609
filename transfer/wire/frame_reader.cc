#include "transfer/wire/frame_reader.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/status.h"

namespace tandem {
namespace {

// The size of the buffer into which unwanted payloads are read: large enough that dropping one
// takes few calls, small enough to stay in the cache.
constexpr size_t kDropBytes = 64 << 10;

// Recognizes a peer that speaks TLS to a side that does not. Checked before a header is whole,
// because the alert with which TLS gives up is shorter than a header.
absl::Status RefuseTls(std::span<const std::byte> start) {
  constexpr std::byte kAlert{0x15};
  constexpr std::byte kHandshake{0x16};
  constexpr std::byte kMajorVersion{0x03};
  if (start.size() < 2 || start[1] != kMajorVersion) return absl::OkStatus();
  if (start[0] != kAlert && start[0] != kHandshake) return absl::OkStatus();
  return FailedPrecondition(
      "the peer speaks TLS and this worker does not: give the --kv-tls options to all workers or "
      "to none");
}

}  // namespace

std::array<std::span<std::byte>, 2> FrameReader::Targets() {
  const std::span<std::byte> next_header(header_bytes_);
  switch (state_) {
    case State::kHeader:
      return {next_header.subspan(filled_), {}};
    case State::kLanding:
      return {landing_.subspan(filled_), next_header};
    case State::kDropping:
      break;
  }
  const size_t left = header_.payload_bytes - filled_;
  dropped_.resize(kDropBytes);
  if (left > kDropBytes) return {std::span(dropped_), {}};
  return {std::span(dropped_).first(left), next_header};
}

absl::Status FrameReader::Advance(size_t count) {
  while (count > 0) {
    const bool in_header = state_ == State::kHeader;
    const size_t whole = in_header ? kFrameHeaderBytes : header_.payload_bytes;
    const size_t taken = std::min(count, whole - filled_);
    filled_ += taken;
    count -= taken;
    if (in_header) RETURN_IF_ERROR(RefuseTls(std::span(header_bytes_).first(filled_)));
    if (filled_ < whole) return absl::OkStatus();
    filled_ = 0;
    if (in_header) {
      RETURN_IF_ERROR(HeaderFilled());
    } else {
      PayloadFilled();
    }
  }
  return absl::OkStatus();
}

absl::Status FrameReader::HeaderFilled() {
  ASSIGN_OR_RETURN(header_, ParseFrameHeader(header_bytes_));
  if (header_.type != FrameType::kData) return handler_.Control(header_);
  auto landing = handler_.Prepare(header_);
  if (!landing.ok()) {
    state_ = State::kDropping;
    return absl::OkStatus();
  }
  TANDEM_CHECK(landing->size() == header_.payload_bytes, "a landing place of another size");
  landing_ = *landing;
  state_ = State::kLanding;
  return absl::OkStatus();
}

void FrameReader::PayloadFilled() {
  if (std::exchange(state_, State::kHeader) == State::kDropping) return;
  handler_.Landed(header_, CheckPayloadHash(header_, Hash64(landing_)));
}

absl::Status FrameReader::Feed(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    size_t count = 0;
    for (std::span<std::byte> target : Targets()) {
      const size_t part = std::min(target.size(), bytes.size());
      std::copy_n(bytes.begin(), part, target.begin());
      bytes = bytes.subspan(part);
      count += part;
    }
    RETURN_IF_ERROR(Advance(count));
  }
  return absl::OkStatus();
}

void FrameReader::Stop(const absl::Status& status) {
  filled_ = 0;
  if (std::exchange(state_, State::kHeader) == State::kLanding) handler_.Landed(header_, status);
}

}  // namespace tandem
