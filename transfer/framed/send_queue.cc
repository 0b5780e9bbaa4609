#include "transfer/framed/send_queue.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace tandem {

uint64_t SendWindow::Raise(uint64_t credit) {
  if (!is_open()) {
    size_ = credit_ = credit;
    return 0;
  }
  // The receiver counts a frame twice that came twice, so it may grant more than was ever sent.
  const uint64_t bounded = std::min(credit, size_ + sent_);
  // A renewal is answered with the present credit, which may be no higher than the latest.
  if (bounded <= credit_) return 0;
  return bounded - std::exchange(credit_, bounded);
}

void SendQueue::PushControl(const FrameHeader& header, std::shared_ptr<OutgoingStream> stream) {
  control_.push_back({.header = header, .stream = std::move(stream)});
  news_ = true;
}

void SendQueue::AddData(const std::shared_ptr<OutgoingStream>& stream, uint64_t bytes) {
  waiting_ += bytes;
  news_ = true;
  if (!std::exchange(stream->progress.has_turn, true)) turns_.push_back(stream);
}

// Removes a stream from the turns. A stream without a turn has nothing that waits: extents that the
// peer asks for again begin to wait when its whole answer has come.
void SendQueue::Remove(OutgoingStream& stream) {
  if (!std::exchange(stream.progress.has_turn, false)) return;
  waiting_ -= stream.progress.UnsentBytes();
  link_.TakenBack(0);
  std::erase_if(turns_, [&stream](const auto& other) { return other.get() == &stream; });
}

void SendQueue::TakeBack(uint64_t bytes) {
  window_.TakeBack(bytes);
  news_ = true;
  link_.TakenBack(bytes);
}

uint64_t SendQueue::next_payload_bytes() const {
  return turns_.front()->progress.NextExtent().payload.size();
}

std::optional<NextFrame> SendQueue::Next(TimePoint now) {
  if (!control_.empty()) {
    NextFrame frame = std::move(control_.front());
    control_.pop_front();
    return frame;
  }
  if (turns_.empty()) return std::nullopt;
  const uint64_t bytes = next_payload_bytes();
  if (!window_.Allows(bytes)) return std::nullopt;
  if (!bucket_.Take(now, bytes)) {
    resume_at_ = bucket_.ready_at(now);
    return std::nullopt;
  }
  waiting_ -= bytes;
  window_.Sent(bytes);
  link_.Sent(bytes);
  return TakeData();
}

NextFrame SendQueue::TakeData() {
  std::shared_ptr<OutgoingStream> stream = std::move(turns_.front());
  turns_.pop_front();
  SendProgress& progress = stream->progress;
  const PostedExtent& extent = progress.NextExtent();
  NextFrame frame = {.header = {.type = FrameType::kData,
                                .stream = stream->key().stream,
                                .epoch = stream->key().epoch,
                                .layer = extent.layer,
                                .block = extent.block,
                                .payload_bytes = static_cast<uint32_t>(extent.payload.size()),
                                .kind = extent.kind},
                     .payload = extent.payload,
                     .stream = stream};
  progress.TakeExtent();
  progress.has_turn = progress.has_data();
  frame.is_last_data = !progress.has_turn;
  if (progress.has_turn) turns_.push_back(std::move(stream));
  return frame;
}

absl::Status SendQueue::TakeCredit(uint64_t credit, TimePoint now) {
  const bool first = !window_.is_open();
  if (first && credit == 0) return InvalidArgument("a first credit of nothing");
  const uint64_t consumed = window_.Raise(credit);
  if (consumed > 0) link_.Consumed(now, consumed, in_flight() + waiting_);
  if (first || (consumed > 0 && !turns_.empty())) news_ = true;
  return absl::OkStatus();
}

void SendQueue::Resume() {
  resume_at_ = kNoDeadline;
  news_ = true;
}

}  // namespace tandem
