#include "server/http/polled_stream.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace tandem {
namespace {

namespace asio = boost::asio;
using asio::awaitable;

constexpr int kMaxEndTimes =
    5;  // how often a client that goes on sending may use up the patience of End
constexpr size_t kMaxDiscardedBytes = 128 << 20;

TimePoint In(Duration duration) { return std::chrono::steady_clock::now() + duration; }

bool IsBefore(TimePoint deadline) { return std::chrono::steady_clock::now() < deadline; }

}  // namespace

awaitable<void> PolledStream::Wait(TimePoint deadline) {
  if (!changed_) {
    timer_.expires_at(deadline);
    boost::system::error_code ignored;
    co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  changed_ = false;
}

void PolledStream::Notify() {
  changed_ = true;
  timer_.cancel();
}

void PolledStream::Consume(size_t bytes) {
  received_.erase(0, bytes);
  if (received_.empty() && received_.capacity() > kKeptCapacity) received_ = std::string();
}

void PolledStream::Stop() {
  is_stopped_ = true;
  Notify();
}

void PolledStream::DropInput() {
  received_ = std::string();
  drops_input_ = true;
}

void PolledStream::StartRead(size_t most) {
  if (reading_ || has_ended_) return;
  reading_ = true;
  if (buffer_.size() != most) buffer_ = std::vector<char>(most);
  stream_->Read(buffer_, [self = shared_from_this()](size_t bytes) {
    self->reading_ = false;
    self->has_ended_ = bytes == 0;
    if (!self->drops_input_) self->received_.append(self->buffer_.data(), bytes);
    self->Notify();
  });
}

void PolledStream::StartWrite(std::string_view bytes, std::shared_ptr<const void> owner) {
  const size_t sent = stream_->WriteNow(bytes);
  write_ = sent == bytes.size() ? Write::kDone : Write::kBusy;
  if (write_ == Write::kDone) return;
  stream_->Write(bytes.substr(sent), [self = shared_from_this(),
                                      owner = std::move(owner)](bool ok) { self->OnWritten(ok); });
}

awaitable<bool> PolledStream::WriteAll(const std::shared_ptr<const std::string>& bytes,
                                       Duration patience) {
  StartWrite(*bytes, bytes);
  const bool sent = co_await AwaitWrite(In(patience));
  co_return sent;
}

awaitable<bool> PolledStream::Handshake(Duration patience) {
  write_ = Write::kBusy;
  stream_->Handshake([self = shared_from_this()](bool ok) { self->OnWritten(ok); });
  const bool done = co_await AwaitWrite(In(patience));
  co_return done;
}

awaitable<void> PolledStream::End(Duration patience) {
  stream_->EndWriting([self = shared_from_this()](bool) { self->Notify(); });
  const TimePoint last_deadline = In(kMaxEndTimes * patience);
  TimePoint deadline = In(patience);
  size_t discarded = 0;
  drops_input_ = false;
  while (!has_ended_ && !is_stopped_ && discarded < kMaxDiscardedBytes && IsBefore(deadline)) {
    if (!received_.empty()) deadline = std::min(In(patience), last_deadline);
    discarded += received_.size();
    received_.clear();
    StartRead(kBodyReadBytes);
    co_await Wait(deadline);
  }
}

void PolledStream::OnWritten(bool ok) {
  write_ = ok ? Write::kDone : Write::kFailed;
  Notify();
}

awaitable<bool> PolledStream::AwaitWrite(TimePoint deadline) {
  while (write_ == Write::kBusy && !is_stopped_ && IsBefore(deadline)) co_await Wait(deadline);
  co_return TakeWrite() == Write::kDone;
}

}  // namespace tandem
