#include "transfer/framed/reply_buffer.h"

#include <algorithm>

#include "base/status.h"

namespace tandem {
namespace {

// The most bytes of answers that may wait. That is far more answers than there can be streams under
// way, so a peer that leaves them unread is broken.
constexpr size_t kMaxBytes = 4 << 20;
constexpr size_t kMaxResends = 8192;  // the most kResend frames of one answer

}  // namespace

void ReplyBuffer::Add(const FrameHeader& header) {
  const auto bytes = EncodeFrameHeader(header);
  bytes_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

void ReplyBuffer::Ack(StreamKey key, uint32_t commit) {
  Add({.type = FrameType::kAck, .stream = key.stream, .epoch = key.epoch, .block = commit});
}

void ReplyBuffer::Reject(StreamKey key, uint32_t commit, absl::StatusCode code) {
  Add({.type = FrameType::kReject,
       .code = static_cast<uint8_t>(code),
       .stream = key.stream,
       .epoch = key.epoch,
       .block = commit});
}

void ReplyBuffer::Credit(uint64_t bytes) { Add({.type = FrameType::kCredit, .frames = bytes}); }

void ReplyBuffer::Resend(StreamKey key, std::span<const MissingExtent> missing) {
  const size_t count = std::min(missing.size(), kMaxResends);
  for (const MissingExtent& extent : missing.first(count)) {
    Add({.type = FrameType::kResend,
         .stream = key.stream,
         .epoch = key.epoch,
         .layer = extent.layer,
         .block = extent.block,
         .frames = count});
  }
}

absl::Status ReplyBuffer::WriteTo(ByteChannel& channel, TransportCounters& counters) {
  while (!bytes_.empty()) {
    const iovec part = {bytes_.data(), bytes_.size()};
    ASSIGN_OR_RETURN(const size_t count, channel.Write({&part, 1}));
    if (count == 0) break;
    counters.sent += count;
    bytes_.erase(0, count);
  }
  // Even if no answers are left, the channel may hold bytes that it took before.
  if (bytes_.empty() && channel.wants_output()) RETURN_IF_ERROR(channel.Write({}).status());
  if (bytes_.size() <= kMaxBytes) return absl::OkStatus();
  return Unavailable("the peer does not read: {} bytes of replies wait", bytes_.size());
}

}  // namespace tandem
