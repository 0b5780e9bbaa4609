#include "transfer/tcp/outbound.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/hash.h"
#include "base/status.h"

namespace tandem {
namespace {

// A payload is hashed when its frame joins the batch and sent soon after, out of the cache.
constexpr size_t kBatchBytes = 512 << 10;
constexpr size_t kBatchFrames = 64;

}  // namespace

OutboundConnection::OutboundConnection(Options options, SendStreams& streams,
                                       TransportCounters& counters, StreamOver stream_over)
    : options_(std::move(options)),
      streams_(streams),
      counters_(counters),
      stream_over_(std::move(stream_over)),
      reader_(*this),
      last_progress_(std::chrono::steady_clock::now()) {}

absl::Status OutboundConnection::Connect(std::vector<SocketAddress> addresses) {
  addresses_ = std::move(addresses);
  std::reverse(addresses_.begin(), addresses_.end());
  return TryNextAddress(Unavailable("no address"));
}

absl::Status OutboundConnection::TryNextAddress(absl::Status last_error) {
  while (!addresses_.empty()) {
    auto started = StartConnect(addresses_.back());
    addresses_.pop_back();
    if (started.ok()) {
      // The old socket is closed after the new one was opened, so that their numbers differ.
      socket_ = *std::move(started);
      state_ = State::kConnecting;
      return absl::OkStatus();
    }
    last_error = started.status();
  }
  return last_error;
}

void OutboundConnection::AddStream(StreamKey key, uint64_t serial) {
  sending_[key] = Stream{.serial = serial};
}

void OutboundConnection::Queue(StreamKey key, const QueuedFrame& frame) {
  const auto place = sending_.find(key);
  if (place == sending_.end()) return;
  const bool idle = state_ == State::kOpen && !wants_write();
  if (idle) last_progress_ = std::chrono::steady_clock::now();
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

absl::Status OutboundConnection::OnReadable() {
  if (state_ != State::kOpen) return absl::OkStatus();
  while (true) {
    const std::span<std::byte> target = reader_.Targets()[0];
    const ssize_t count = read(socket_.get(), target.data(), target.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return absl::OkStatus();
    if (count < 0) return Unavailable("connection lost: {}", ErrnoMessage(errno));
    if (count == 0) return Unavailable("the peer closed the connection");
    counters_.received += static_cast<uint64_t>(count);
    RETURN_IF_ERROR(reader_.Advance(static_cast<size_t>(count)));
    if (got_data_) return InvalidArgument("data frame from a receiver");
  }
}

absl::Status OutboundConnection::OnWritable() {
  if (state_ == State::kConnecting) {
    if (absl::Status result = ConnectResult(socket_); !result.ok()) {
      return TryNextAddress(std::move(result));
    }
    state_ = State::kOpen;
    last_progress_ = std::chrono::steady_clock::now();
  }
  return Flush();
}

absl::Status OutboundConnection::Flush() {
  if (state_ != State::kOpen) return absl::OkStatus();
  for (size_t total = 0; total < kBytesPerTurn;) {
    FillBatch();
    if (batch_.empty()) break;
    ASSIGN_OR_RETURN(const size_t count, SendBatch());
    if (count == 0) break;
    total += count;
    TakeSent(count);
  }
  return absl::OkStatus();
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

// How many bytes the socket took; 0: none for now.
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
  const msghdr message = {.msg_iov = parts.data(), .msg_iovlen = num_parts};
  ssize_t count = -1;
  do {
    count = sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
  } while (count < 0 && errno == EINTR);
  if (count < 0 && errno == EAGAIN) return 0;
  if (count < 0) return Unavailable("connection lost: {}", ErrnoMessage(errno));
  return static_cast<size_t>(count);
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

bool OutboundConnection::wants_write() const {
  if (state_ == State::kConnecting) return true;
  return state_ == State::kOpen && (!batch_.empty() || !turns_.empty());
}

TimePoint OutboundConnection::deadline() const {
  if (state_ != State::kOpen) return last_progress_ + options_.connect_timeout;
  return wants_write() ? last_progress_ + options_.stall_timeout : kNoDeadline;
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
