#include "transfer/framed/inbound.h"

#include <utility>

#include "base/status.h"

namespace tandem {
namespace {

// Far more replies than there can be streams under way: a peer that reads none of them is broken.
constexpr size_t kMaxReplyBytes = 1 << 20;

}  // namespace

InboundConnection::InboundConnection(std::unique_ptr<ByteChannel> channel, FrameReceiver& receiver,
                                     TransportCounters& counters, const Timeouts& timeouts)
    : channel_(std::move(channel)),
      receiver_(receiver),
      counters_(counters),
      timeouts_(timeouts),
      reader_(*this),
      last_progress_(std::chrono::steady_clock::now()) {}

absl::StatusOr<Turn> InboundConnection::Advance() {
  if (!established_) {
    ASSIGN_OR_RETURN(established_, channel_->Establish());
    if (!established_) return Turn::kDone;
    last_progress_ = std::chrono::steady_clock::now();
  }
  ASSIGN_OR_RETURN(const Turn turn, Read());
  RETURN_IF_ERROR(WriteReplies());
  return turn;
}

absl::StatusOr<Turn> InboundConnection::Read() {
  for (size_t total = 0; total < kBytesPerTurn;) {
    const auto targets = reader_.Targets();
    const iovec parts[2] = {{targets[0].data(), targets[0].size()},
                            {targets[1].data(), targets[1].size()}};
    ASSIGN_OR_RETURN(const size_t count, channel_->Read(parts));
    if (count == 0) return Turn::kDone;
    counters_.received += count;
    total += count;
    last_progress_ = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(reader_.Advance(count));
  }
  return Turn::kMore;
}

absl::Status InboundConnection::WriteReplies() {
  while (!replies_.empty()) {
    const iovec part = {replies_.data(), replies_.size()};
    ASSIGN_OR_RETURN(const size_t count, channel_->Write({&part, 1}));
    if (count == 0) break;
    counters_.sent += count;
    replies_.erase(0, count);
  }
  // The channel may hold bytes that it took before.
  if (replies_.empty() && channel_->wants_output()) {
    RETURN_IF_ERROR(channel_->Write({}).status());
  }
  if (replies_.size() > kMaxReplyBytes) {
    return Unavailable("the peer does not read: {} bytes of replies wait", replies_.size());
  }
  return absl::OkStatus();
}

TimePoint InboundConnection::deadline() const {
  if (!established_) return last_progress_ + timeouts_.connect;
  return reader_.mid_frame() ? last_progress_ + timeouts_.stall : kNoDeadline;
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
    const CommitAnswer answer = receiver_.Commit(header);
    code = answer.missing.empty() ? answer.status.code() : absl::StatusCode::kDataLoss;
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
