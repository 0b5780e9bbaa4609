#include "transfer/framed/frame_batch.h"

#include <algorithm>
#include <utility>

namespace tandem {

size_t FrameBatch::num_slots() const {
  return static_cast<size_t>(
      std::ranges::count_if(frames_, [](const OutFrame& frame) { return bool{frame.slot}; }));
}

void FrameBatch::Add(const FrameHeader& fields, std::span<const std::byte> payload,
                     MemorySlot slot) {
  OutFrame& frame = frames_.emplace_back();
  frame.fields = fields;
  frame.payload = payload;
  frame.slot = std::move(slot);
  bytes_ += frame.left();
}

void FrameBatch::Announce(uint32_t bytes) {
  const auto first = std::ranges::find_if(
      frames_, [](const OutFrame& frame) { return BringsPayload(frame.fields); });
  OutFrame frame;
  frame.fields = {.type = FrameType::kAnnounce, .payload_bytes = bytes};
  bytes_ += frame.left();
  frames_.insert(first, std::move(frame));
}

void FrameBatch::Encode(size_t first) {
  bool has_commit = false;
  for (size_t i = first; i < frames_.size(); ++i) {
    frames_[i].header = EncodeFrameHeader(frames_[i].fields);
    has_commit |= frames_[i].fields.type == FrameType::kCommit;
  }
  if (has_commit) CountPayload();
}

uint64_t FrameBatch::Drop(StreamKey key) {
  uint64_t unsent = 0;
  // Frames without payload stay, because they read nothing of the caller's memory.
  std::erase_if(frames_, [&](const OutFrame& frame) {
    if (!BringsPayload(frame.fields) || KeyOf(frame.fields) != key || frame.sent > 0) return false;
    bytes_ -= frame.left();
    unsent += frame.payload_bytes();
    return true;
  });
  if (unsent > 0) CountPayload();
  if (frames_.empty()) return unsent;
  OutFrame& frame = frames_.front();
  const bool is_callers = !frame.payload.empty() && !frame.slot && frame.owned.empty();
  if (!is_callers || KeyOf(frame.fields) != key) return unsent;
  frame.owned.assign(frame.payload.begin(), frame.payload.end());
  frame.payload = frame.owned;
  return unsent;
}

// Enters in each commit of the batch how much payload was sent before it. Repeated whenever an
// earlier frame was dropped.
void FrameBatch::CountPayload() {
  uint64_t before = sent_payload_;
  for (OutFrame& frame : frames_) {
    if (frame.fields.type == FrameType::kCommit && frame.sent == 0) {
      frame.fields.sent_bytes = before;
      frame.header = EncodeFrameHeader(frame.fields);
    }
    before += frame.payload_bytes();
  }
}

std::span<iovec> FrameBatch::Parts(std::span<iovec, kMaxParts> parts) const {
  size_t count = 0;
  const auto add = [&](std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    parts[count++] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  };
  for (const OutFrame& frame : frames_) {
    if (count + 2 > parts.size()) break;
    const size_t header_sent = std::min(frame.sent, frame.header.size());
    add(std::span(frame.header).subspan(header_sent));
    add(frame.payload.subspan(frame.sent - header_sent));
  }
  return parts.first(count);
}

FrameBatch::Sent FrameBatch::TakeSent(size_t count) {
  Sent sent = {.bytes = count};
  bytes_ -= count;
  while (count > 0) {
    OutFrame& frame = frames_.front();
    // A renewal is no progress: renewals go out, and are answered, even if everything else is
    // stuck.
    sent.is_progress |= frame.fields.type != FrameType::kRenew;
    const size_t taken = std::min(count, frame.left());
    frame.sent += taken;
    count -= taken;
    if (frame.left() > 0) break;
    sent_payload_ += frame.payload_bytes();
    if (frame.fields.type == FrameType::kReference) sent.bytes += frame.fields.payload_bytes;
    frames_.pop_front();
  }
  return sent;
}

}  // namespace tandem
