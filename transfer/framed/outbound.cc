#include "transfer/framed/outbound.h"

#include <sys/uio.h>

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "base/status.h"

namespace tandem {
namespace {

// A payload is hashed when its frame joins the batch and sent soon after, out of the cache.
constexpr size_t kBatchBytes = 512 << 10;
constexpr size_t kBatchFrames = 64;

}  // namespace

OutboundConnection::OutboundConnection(Options options, std::unique_ptr<ByteChannel> channel,
                                       SendStreams& streams, TransportCounters& counters,
                                       StreamOver stream_over)
    : options_(std::move(options)),
      streams_(streams),
      counters_(counters),
      stream_over_(std::move(stream_over)),
      channel_(std::move(channel)),
      reader_(*this),
      last_progress_(std::chrono::steady_clock::now()) {}

void OutboundConnection::AddStream(StreamKey key, uint64_t serial) {
  sending_[key] = Stream{.serial = serial};
}

void OutboundConnection::Queue(StreamKey key, const QueuedFrame& frame) {
  const auto place = sending_.find(key);
  if (place == sending_.end()) return;
  if (established_ && !has_work()) last_progress_ = std::chrono::steady_clock::now();
  if (place->second.queue.empty()) turns_.push_back(key);
  place->second.queue.push_back(frame);
}

void OutboundConnection::DropStream(StreamKey key) {
  if (sending_.erase(key) == 0) return;
  std::erase(turns_, key);
  std::erase_if(batch_, [&](const OutFrame& frame) {
    const bool unsent = frame.key == key && frame.sent == 0;
    if (unsent) batch_bytes_ -= frame.left();
    return unsent;
  });
  if (batch_.empty() || batch_.front().key != key) return;
  OutFrame& half_sent = batch_.front();
  half_sent.owned.assign(half_sent.payload.begin(), half_sent.payload.end());
  half_sent.payload = half_sent.owned;
}

absl::StatusOr<Turn> OutboundConnection::Advance() {
  if (!established_) {
    ASSIGN_OR_RETURN(established_, channel_->Establish());
    if (!established_) return Turn::kDone;
    last_progress_ = std::chrono::steady_clock::now();
  }
  RETURN_IF_ERROR(ReadReplies());
  return Send();
}

absl::Status OutboundConnection::ReadReplies() {
  while (true) {
    const std::span<std::byte> target = reader_.Targets()[0];
    const iovec part = {target.data(), target.size()};
    ASSIGN_OR_RETURN(const size_t count, channel_->Read({&part, 1}));
    if (count == 0) return absl::OkStatus();
    counters_.received += count;
    RETURN_IF_ERROR(reader_.Advance(count));
    if (got_data_) return InvalidArgument("data frame from a receiver");
  }
}

absl::StatusOr<Turn> OutboundConnection::Send() {
  for (size_t total = 0; total < kBytesPerTurn;) {
    FillBatch();
    if (batch_.empty()) return FlushChannel();
    ASSIGN_OR_RETURN(const size_t count, SendBatch());
    if (count == 0) return Turn::kDone;
    total += count;
    TakeSent(count);
  }
  return Turn::kMore;
}

// The channel may hold bytes that it took before.
absl::StatusOr<Turn> OutboundConnection::FlushChannel() {
  if (channel_->wants_output()) RETURN_IF_ERROR(channel_->Write({}).status());
  return Turn::kDone;
}

void OutboundConnection::FillBatch() {
  while (!turns_.empty() && batch_bytes_ < kBatchBytes && batch_.size() < kBatchFrames) {
    const StreamKey key = turns_.front();
    turns_.pop_front();
    Stream& stream = sending_.at(key);
    QueuedFrame frame = stream.queue.front();
    stream.queue.pop_front();
    if (!stream.queue.empty()) turns_.push_back(key);
    if (frame.header.type == FrameType::kData) frame.header.payload_hash = Hash64(frame.payload);
    batch_.push_back({.key = key,
                      .serial = stream.serial,
                      .type = frame.header.type,
                      .header = EncodeFrameHeader(frame.header),
                      .payload = frame.payload});
    batch_bytes_ += batch_.back().left();
  }
}

// How many bytes the channel took; 0: none for now.
absl::StatusOr<size_t> OutboundConnection::SendBatch() {
  std::array<iovec, 2 * kBatchFrames> parts;
  size_t num_parts = 0;
  const auto add = [&](std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    parts[num_parts++] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  };
  for (const OutFrame& frame : batch_) {
    const size_t header_sent = std::min(frame.sent, frame.header.size());
    add(std::span(frame.header).subspan(header_sent));
    add(frame.payload.subspan(frame.sent - header_sent));
  }
  return channel_->Write(std::span(parts).first(num_parts));
}

void OutboundConnection::TakeSent(size_t count) {
  counters_.sent += count;
  batch_bytes_ -= count;
  last_progress_ = std::chrono::steady_clock::now();
  while (count > 0) {
    OutFrame& frame = batch_.front();
    const size_t taken = std::min(count, frame.left());
    frame.sent += taken;
    count -= taken;
    if (frame.left() > 0) return;
    FrameSent(frame);
    batch_.pop_front();
  }
}

void OutboundConnection::FrameSent(const OutFrame& frame) {
  const auto place = sending_.find(frame.key);
  if (place == sending_.end() || place->second.serial != frame.serial) return;
  if (frame.type == FrameType::kCommit) {
    place->second.committed = true;
  } else {
    streams_.Release(frame.key, frame.serial, 1);
  }
}

TimePoint OutboundConnection::deadline() const {
  if (!established_) return last_progress_ + options_.connect_timeout;
  return has_work() ? last_progress_ + options_.stall_timeout : kNoDeadline;
}

absl::StatusOr<std::span<std::byte>> OutboundConnection::Prepare(const FrameHeader&) {
  got_data_ = true;
  return Cancelled("nothing is received here");
}

absl::Status OutboundConnection::Control(const FrameHeader& header) {
  if (header.type == FrameType::kCommit) return InvalidArgument("commit from a receiver");
  const StreamKey key = KeyOf(header);
  const auto place = sending_.find(key);
  if (place == sending_.end()) return absl::OkStatus();  // aborted meanwhile
  absl::Status status;
  if (header.type == FrameType::kReject) {
    status = MakeStatus(static_cast<absl::StatusCode>(header.code), "{} rejected stream {}",
                        options_.peer, key.stream);
  } else if (!place->second.committed) {
    return InvalidArgument("stream {} was acknowledged before its commit", key.stream);
  }
  const uint64_t serial = place->second.serial;
  DropStream(key);
  stream_over_(key, serial, status);
  return absl::OkStatus();
}

}  // namespace tandem
