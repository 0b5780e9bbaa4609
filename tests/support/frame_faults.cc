#include "tests/support/frame_faults.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <span>
#include <utility>

namespace tandem {

void FlipBits(std::string& bytes, size_t begin, size_t end, uint32_t bits, uint64_t seed) {
  const size_t num_bits = 8 * (end - begin);
  std::mt19937_64 random(seed);
  std::set<size_t> chosen;
  while (chosen.size() < std::min<size_t>(bits, num_bits)) chosen.insert(random() % num_bits);
  for (size_t bit : chosen) bytes[begin + bit / 8] ^= static_cast<char>(1 << (bit % 8));
}

namespace {

bool IsAnnouncement(const std::string& frame) {
  const auto header = ParseFrameHeader(std::as_bytes(std::span(frame)).first<kFrameHeaderBytes>());
  return header.ok() && header->type == FrameType::kAnnounce;
}

// False where the frame is no reference. Payload and hash disagree, whichever of them is changed.
bool FlipReferredPayload(const FrameAction& action, std::string& frame) {
  const auto bytes = std::as_bytes(std::span(frame)).first<kFrameHeaderBytes>();
  auto header = ParseFrameHeader(bytes);
  if (!header.ok() || header->type != FrameType::kReference) return false;
  std::string hash(reinterpret_cast<const char*>(&header->payload_hash), sizeof(uint64_t));
  FlipBits(hash, 0, hash.size(), action.bits, action.seed);
  std::memcpy(&header->payload_hash, hash.data(), hash.size());
  const auto encoded = EncodeFrameHeader(*header);
  frame.assign(reinterpret_cast<const char*>(encoded.data()), encoded.size());
  return true;
}

}  // namespace

FrameFaults::FrameFaults(FrameDirection direction, uint64_t connection, uint16_t sender_port)
    : direction_(direction), connection_(connection), sender_port_(sender_port) {}

void FrameFaults::Feed(std::string_view bytes, const FrameHook& hook, std::string& out) {
  if (cut_) return;
  in_.append(bytes);
  Pump(hook, out);
}

void FrameFaults::Release(const FrameHook& hook, std::string& out) {
  if (cut_) return;
  if (std::exchange(held_, false)) first_passes_ = rest_.empty();
  out += std::exchange(rest_, {});
  // A frame that waits for the next one goes now when there is no next one.
  Pump(hook, out);
  if (!cut_ && !held_) out += std::exchange(swapped_, {});
}

void FrameFaults::Pump(const FrameHook& hook, std::string& out) {
  FrameHeader header;
  while (!held_ && !cut_) {
    const auto size = WholeFrame(header);
    if (!size) break;
    FrameAction action;
    if (!std::exchange(first_passes_, false)) {
      action = hook({.header = header,
                     .direction = direction_,
                     .connection = connection_,
                     .sender_port = sender_port_});
    }
    if (action.kind == FrameAction::Kind::kHold) {
      held_ = true;
      return;
    }
    std::string frame = in_.substr(0, *size);
    in_.erase(0, *size);
    Apply(action, std::move(frame), out);
  }
  if (not_frames_) out += std::exchange(in_, {});
}

std::optional<size_t> FrameFaults::WholeFrame(FrameHeader& header) {
  if (not_frames_ || in_.size() < kFrameHeaderBytes) return std::nullopt;
  const auto bytes = std::as_bytes(std::span(in_)).first<kFrameHeaderBytes>();
  const auto parsed = ParseFrameHeader(bytes);
  if (!parsed.ok()) {
    not_frames_ = true;
    return std::nullopt;
  }
  header = *parsed;
  const size_t payload = header.type == FrameType::kData ? header.payload_bytes : 0;
  const size_t size = kFrameHeaderBytes + payload;
  return in_.size() < size ? std::nullopt : std::optional(size);
}

void FrameFaults::Apply(const FrameAction& action, std::string frame, std::string& out) {
  using Kind = FrameAction::Kind;
  const bool has_payload = frame.size() > kFrameHeaderBytes;
  // Behind the next announcement a reference names nothing any more, which closes the connection.
  if (IsAnnouncement(frame)) out += std::exchange(swapped_, {});
  if (action.kind == Kind::kSwap && swapped_.empty()) {
    swapped_ = std::move(frame);
    return;
  }
  switch (action.kind) {
    case Kind::kPass:
    case Kind::kSwap:  // one already waits for this frame
    case Kind::kHold:  // handled before
      out += frame;
      break;
    case Kind::kDrop:
      break;
    case Kind::kDuplicate:
      out += frame;
      out += frame;
      break;
    case Kind::kFlipPayload:
      if (FlipReferredPayload(action, frame)) {
        out += frame;
        break;
      }
      if (has_payload) {
        FlipBits(frame, kFrameHeaderBytes, frame.size(), action.bits, action.seed);
        out += frame;
        break;
      }
      [[fallthrough]];
    case Kind::kFlipHeader:
      FlipBits(frame, 0, kFrameHeaderBytes, action.bits, action.seed);
      out += frame;
      break;
    case Kind::kHoldInside:
      out.append(frame, 0, frame.size() / 2);
      rest_ = frame.substr(frame.size() / 2) + std::exchange(swapped_, {});
      held_ = true;
      return;
    case Kind::kCutInside:
      out.append(frame, 0, frame.size() / 2);
      cut_ = true;
      return;
    case Kind::kCutAfter:
      out += frame;
      cut_ = true;
      return;
    case Kind::kCutBefore:
      cut_ = true;
      return;
  }
  out += std::exchange(swapped_, {});
}

}  // namespace tandem
