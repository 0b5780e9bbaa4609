#include "transfer/tcp/inbound.h"

#include <sys/uio.h>

#include <cerrno>
#include <utility>

#include "base/status.h"

namespace tandem {
namespace {

// Far more replies than there can be streams under way: a peer that reads none of them is broken.
constexpr size_t kMaxReplyBytes = 1 << 20;

}  // namespace

InboundConnection::InboundConnection(UniqueFd socket, FrameReceiver& receiver,
                                     TransportCounters& counters,
                                     std::chrono::milliseconds stall_timeout)
    : socket_(std::move(socket)),
      receiver_(receiver),
      counters_(counters),
      stall_timeout_(stall_timeout),
      reader_(*this) {}

absl::Status InboundConnection::OnReadable() {
  for (size_t total = 0; total < kBytesPerTurn;) {
    const auto targets = reader_.Targets();
    const iovec parts[2] = {{targets[0].data(), targets[0].size()},
                            {targets[1].data(), targets[1].size()}};
    const ssize_t count = readv(socket_.get(), parts, 2);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count < 0) return Unavailable("connection lost: {}", ErrnoMessage(errno));
    if (count == 0) return Unavailable("the peer closed the connection");
    counters_.received += static_cast<uint64_t>(count);
    total += static_cast<size_t>(count);
    last_progress_ = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(reader_.Advance(static_cast<size_t>(count)));
  }
  return OnWritable();
}

absl::Status InboundConnection::OnWritable() {
  while (!replies_.empty()) {
    const ssize_t count = send(socket_.get(), replies_.data(), replies_.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count < 0) return Unavailable("connection lost: {}", ErrnoMessage(errno));
    counters_.sent += static_cast<uint64_t>(count);
    replies_.erase(0, static_cast<size_t>(count));
  }
  if (replies_.size() > kMaxReplyBytes) {
    return Unavailable("the peer does not read: {} bytes of replies wait", replies_.size());
  }
  return absl::OkStatus();
}

TimePoint InboundConnection::deadline() const {
  return reader_.mid_frame() ? last_progress_ + stall_timeout_ : kNoDeadline;
}

void InboundConnection::OnClosed(const absl::Status& status) {
  reader_.Stop(Annotate(Unavailable("a payload did not arrive whole"),
                        std::string_view(status.message().data(), status.message().size())));
}

absl::StatusOr<std::span<std::byte>> InboundConnection::Prepare(const FrameHeader& header) {
  const StreamKey key = KeyOf(header);
  if (refused_.Find(key)) return Cancelled("stream {} is refused already", key.stream);
  auto landing = receiver_.Prepare(header);
  if (!landing.ok()) Refuse(key, landing.status().code());
  return landing;
}

void InboundConnection::Landed(const FrameHeader& header, const absl::Status& status) {
  receiver_.Landed(header, status);
  if (!status.ok()) Refuse(KeyOf(header), status.code());
}

absl::Status InboundConnection::Control(const FrameHeader& header) {
  if (header.type != FrameType::kCommit) {
    return InvalidArgument("frame of type {} from a sender", static_cast<int>(header.type));
  }
  const StreamKey key = KeyOf(header);
  absl::StatusCode code = absl::StatusCode::kOk;
  if (const auto refused = refused_.Find(key)) {
    code = *refused;
    refused_.Erase(key);
  } else {
    code = receiver_.Commit(header).code();
  }
  Reply({.type = code == absl::StatusCode::kOk ? FrameType::kAck : FrameType::kReject,
         .code = static_cast<uint8_t>(code),
         .stream = key.stream,
         .epoch = key.epoch});
  return absl::OkStatus();
}

void InboundConnection::Refuse(StreamKey key, absl::StatusCode code) {
  refused_.Add(key, code);
  Reply({.type = FrameType::kReject,
         .code = static_cast<uint8_t>(code),
         .stream = key.stream,
         .epoch = key.epoch});
}

void InboundConnection::Reply(const FrameHeader& header) {
  const auto bytes = EncodeFrameHeader(header);
  replies_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace tandem
