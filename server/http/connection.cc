#include "server/http/connection.h"

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "base/log.h"
#include "server/http/answer.h"
#include "server/http/request_reader.h"

namespace tandem {
namespace {

namespace asio = boost::asio;
using asio::awaitable;

// How much is read at once: little while a connection is idle, because each has such a buffer.
constexpr size_t kIdleReadBytes = 4 << 10;
constexpr size_t kBodyReadBytes = 64 << 10;
// Of requests that a client sends before the answer to an earlier one. What comes beyond is thrown away,
// and the connection ends after that answer: if reading stopped instead, nobody would see the client go.
constexpr size_t kMaxPipelinedBytes = 64 << 10;
// A client that is refused may still be sending; if the connection were closed at once, it would lose
// the answer. So much of what it sends is thrown away, for as long as it does not pause for kEndTime.
constexpr Duration kEndTime = std::chrono::seconds(2);
constexpr int kMaxEndTimes = 5;  // in all
constexpr size_t kMaxDiscardedBytes = 128 << 20;
// For a refusal or "100 Continue" to be written.
constexpr Duration kShortWriteTime = std::chrono::seconds(5);
// For each of these while the server ends.
constexpr Duration kLastWordsTime = std::chrono::milliseconds(200);
// Connections that are refused at a time; each takes a descriptor and a buffer.
constexpr int kMaxRefusing = 64;

TimePoint Now() { return std::chrono::steady_clock::now(); }

TimePoint After(Duration duration) { return Now() + duration; }

// A connection's reads, writes and time, as state that one coroutine looks at whenever something has
// changed. Thread: the I/O context's.
class Wire : public std::enable_shared_from_this<Wire> {
 public:
  enum class Write : uint8_t { kIdle, kBusy, kDone, kFailed };

  Wire(asio::io_context& io, std::unique_ptr<ByteStream> stream)
      : stream_(std::move(stream)), timer_(io) {}

  // Waits until something has changed since the last wait, or the deadline.
  awaitable<void> Wait(TimePoint deadline) {
    if (!changed_) {
      timer_.expires_at(deadline);
      boost::system::error_code ignored;
      co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    }
    changed_ = false;
  }
  void Notify() {
    changed_ = true;
    timer_.cancel();
  }

  // The bytes that came and were not consumed.
  const std::string& received() const { return received_; }
  void Consume(size_t bytes) {
    received_.erase(0, bytes);
    if (received_.empty() && received_.capacity() > kMaxPipelinedBytes) received_ = std::string();
  }
  // The client sends nothing more, or is gone.
  bool has_ended() const { return has_ended_; }
  // The server wants the connection to end.
  bool is_stopped() const { return is_stopped_; }
  void Stop() {
    is_stopped_ = true;
    Notify();
  }
  // So that a stopped connection can take last words.
  void Resume() { is_stopped_ = false; }

  // What was received and not consumed, and all that is still to come, is thrown away.
  void DropInput() {
    received_ = std::string();
    drops_input_ = true;
  }
  bool drops_input() const { return drops_input_; }

  // Does nothing while a read is in progress.
  void StartRead(size_t most) {
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

  // None may be in progress. `owner` keeps the bytes alive. Events are short, so that the system nearly
  // always takes them at once: the write is then done on return, which saves a turn of the I/O context.
  void StartWrite(std::string_view bytes, std::shared_ptr<const void> owner) {
    const size_t sent = stream_->WriteNow(bytes);
    write_ = sent == bytes.size() ? Write::kDone : Write::kBusy;
    if (write_ == Write::kDone) return;
    stream_->Write(bytes.substr(sent), [self = shared_from_this(), owner = std::move(owner)](
                                           bool ok) { self->OnWritten(ok); });
  }
  // What has become of the latest write; what was done is then kIdle.
  Write TakeWrite() {
    return write_ == Write::kBusy ? write_ : std::exchange(write_, Write::kIdle);
  }
  // Writes bytes that are alive until then, or until the connection is closed.
  awaitable<bool> WriteAll(const std::shared_ptr<const std::string>& bytes, Duration patience) {
    StartWrite(*bytes, bytes);
    const bool sent = co_await AwaitWrite(After(patience));
    co_return sent;
  }

  awaitable<bool> Handshake(Duration patience) {
    write_ = Write::kBusy;
    stream_->Handshake([self = shared_from_this()](bool ok) { self->OnWritten(ok); });
    const bool done = co_await AwaitWrite(After(patience));
    co_return done;
  }
  absl::Status refusal() const { return stream_->refusal(); }
  // Tells the client that this is the end, and waits a little for its own.
  awaitable<void> End(Duration patience) {
    stream_->EndWriting([self = shared_from_this()](bool) { self->Notify(); });
    const TimePoint last_deadline = After(kMaxEndTimes * patience);
    TimePoint deadline = After(patience);
    size_t discarded = 0;
    drops_input_ = false;
    while (!has_ended_ && !is_stopped_ && discarded < kMaxDiscardedBytes && Now() < deadline) {
      if (!received_.empty()) deadline = std::min(After(patience), last_deadline);
      discarded += received_.size();
      received_.clear();
      StartRead(kBodyReadBytes);
      co_await Wait(deadline);
    }
  }
  void Close() { stream_->Close(); }

 private:
  void OnWritten(bool ok) {
    write_ = ok ? Write::kDone : Write::kFailed;
    Notify();
  }
  awaitable<bool> AwaitWrite(TimePoint deadline) {
    while (write_ == Write::kBusy && !is_stopped_ && Now() < deadline) co_await Wait(deadline);
    co_return TakeWrite() == Write::kDone;
  }

  const std::unique_ptr<ByteStream> stream_;
  asio::steady_timer timer_;
  bool changed_ = false;
  bool reading_ = false;
  bool has_ended_ = false;
  bool is_stopped_ = false;
  bool drops_input_ = false;
  Write write_ = Write::kIdle;
  std::vector<char> buffer_;  // the system's while `reading_`
  std::string received_;
};

awaitable<void> Refuse(Wire& wire, const HttpRefusal& refusal, Duration write_time,
                       Duration end_time) {
  const HttpResponse response = HttpError(refusal.status, refusal.message);
  std::vector<HttpHeader> headers;
  if (refusal.status == 503) headers.push_back({"Retry-After", "1"});
  std::string bytes = RenderHead({.status = response.status,
                                  .content_type = response.content_type,
                                  .headers = std::move(headers),
                                  .content_length = response.body.size(),
                                  .after = AfterAnswer::kClose});
  bytes += response.body;
  const auto all = std::make_shared<const std::string>(std::move(bytes));
  const bool sent = co_await wire.WriteAll(all, write_time);
  if (sent) co_await wire.End(end_time);
}

constexpr char kNoRoom[] = "the server has too many connections: try again later";

// Of a connection that there is no room for. It counts among those that are being refused.
awaitable<void> RefuseForLackOfRoom(std::shared_ptr<Wire> wire, ServedHttp& server) {
  const absl::Cleanup end = [&wire, &server] {
    wire->Close();
    --server.refusing;
  };
  const HttpRefusal full = {.status = 503, .message = kNoRoom};
  const bool usable = co_await wire->Handshake(kShortWriteTime);
  if (usable) co_await Refuse(*wire, full, kShortWriteTime, kEndTime);
}

struct Incoming {
  HttpRequest request;
  std::shared_ptr<BodyShare> body;
  HttpVersion version = HttpVersion::k11;
  AfterAnswer after = AfterAnswer::kKeepAlive;
};

// The requests of one connection, and their answers. A coroutine runs it.
//
// Arguments of coroutines here are references, numbers, or moved from a variable: GCC 12 may destroy a
// temporary that is an argument of a coroutine twice.
class Connection {
 public:
  Connection(asio::io_context& io, ServedHttp& server, std::shared_ptr<Wire> wire,
             ConnectionBook::Id id, std::string remote)
      : io_(io), server_(server), wire_(std::move(wire)), id_(id), remote_(std::move(remote)) {}
  ~Connection() {
    wire_->Close();
    server_.book.Remove(id_);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  awaitable<void> Run() {
    const TimePoint handshake_end = After(server_.options.header_timeout);
    bool usable = co_await wire_->Handshake(server_.options.header_timeout);
    if (!usable) {
      if (Now() >= handshake_end) server_.refusals.Add(RefusalCounts::kSilent);
      co_return;
    }
    if (const absl::Status refused = wire_->refusal(); !refused.ok()) {
      const HttpRefusal forbidden = {.status = 403, .message = std::string(refused.message())};
      co_await Refuse(forbidden);
      co_return;
    }
    Duration patience = server_.options.header_timeout;
    while (usable) {
      std::optional<Incoming> incoming = co_await ReadRequest(patience);
      if (!incoming) co_return;
      usable = co_await AnswerRequest(*std::move(incoming));
      was_used_ = true;
      patience = server_.options.idle_timeout;
    }
  }

 private:
  // Nothing when the connection is over. The first byte may take `patience`.
  awaitable<std::optional<Incoming>> ReadRequest(Duration patience);
  // The connection has to make room for another one, or the server ends, in this stage of a request.
  awaitable<void> LeaveUnread(RequestReader::State stage);
  awaitable<void> Refuse(const HttpRefusal& refusal) {
    server_.refusals.Add(refusal.status);
    return tandem::Refuse(*wire_, refusal, kShortWriteTime, kEndTime);
  }
  // False when the connection is over.
  awaitable<bool> AnswerRequest(Incoming incoming);
  // Has the request refused, or handled.
  void Serve(Incoming incoming, const std::shared_ptr<Answer>& answer);
  // The server ends before the request was answered: its client may try again elsewhere.
  awaitable<void> RefuseForEnd();
  // Returns once the answer is sent, or the client is gone: then false.
  awaitable<bool> Send(const std::shared_ptr<Answer>& answer);
  // Takes note of writes that have ended and begins the next ones. False when the client is gone.
  bool KeepWriting(const std::shared_ptr<Answer>& answer);
  std::shared_ptr<Answer> NewAnswer(const Incoming& incoming);
  bool IsOver() const { return wire_->has_ended() || wire_->is_stopped(); }

  asio::io_context& io_;
  ServedHttp& server_;
  const std::shared_ptr<Wire> wire_;
  const ConnectionBook::Id id_;
  const std::string remote_;
  bool was_used_ = false;  // a request was answered
  enum class Writing : uint8_t { kNothing, kAnswer, kComment };
  Writing writing_ = Writing::kNothing;
  TimePoint last_write_;
};

awaitable<std::optional<Incoming>> Connection::ReadRequest(Duration patience) {
  using State = RequestReader::State;
  const HttpServerOptions& options = server_.options;
  RequestReader reader(
      {.max_header_bytes = options.max_header_bytes, .max_body_bytes = options.max_body_bytes});
  const auto body = std::make_shared<BodyShare>(server_.bodies);
  State stage = State::kEmpty;
  TimePoint deadline = After(patience);
  server_.book.Enter(id_, ConnectionState::kWaiting);
  while (true) {
    // Also between requests that came together, which are whole at once.
    if (wire_->is_stopped()) {
      co_await LeaveUnread(stage);
      co_return std::nullopt;
    }
    wire_->Consume(reader.Read(wire_->received()));
    const State state = reader.state();
    if (!body->GrowTo(reader.body_bytes())) {
      const HttpRefusal full = {.status = 503,
                                .message = "too many bodies are being received: try again later"};
      co_await Refuse(full);
      co_return std::nullopt;
    }
    if (state == State::kDone) {
      Incoming incoming{.body = body, .version = reader.version(), .after = reader.after()};
      incoming.request = reader.TakeRequest();
      incoming.request.remote = remote_;
      co_return incoming;
    }
    if (state == State::kRefused) {
      co_await Refuse(reader.refusal());
      co_return std::nullopt;
    }
    if (IsOver() || (state == State::kEmpty && server_.draining)) co_return std::nullopt;
    if (state != stage) {
      stage = state;
      deadline = After(state == State::kBody ? options.body_timeout : options.header_timeout);
      if (state == State::kBody) server_.book.Enter(id_, ConnectionState::kReceiving);
      if (state == State::kBody && reader.expects_continue() && wire_->received().empty()) {
        const auto go_on = std::make_shared<const std::string>("HTTP/1.1 100 Continue\r\n\r\n");
        const bool sent = co_await wire_->WriteAll(go_on, kShortWriteTime);
        if (!sent) co_return std::nullopt;
      }
    } else if (Now() >= deadline) {
      if (state == State::kEmpty) {
        if (!was_used_) server_.refusals.Add(RefusalCounts::kSilent);
        co_await wire_->End(kEndTime);
      } else {
        const HttpRefusal late = {.status = 408, .message = "the request did not come in time"};
        co_await Refuse(late);
      }
      co_return std::nullopt;
    }
    wire_->StartRead(state == State::kBody ? kBodyReadBytes : kIdleReadBytes);
    co_await wire_->Wait(deadline);
  }
}

awaitable<void> Connection::LeaveUnread(RequestReader::State stage) {
  // A client that has had an answer knows that its connection may end between two requests.
  if (was_used_ && stage == RequestReader::State::kEmpty) co_return;
  if (server_.draining) {
    co_await RefuseForEnd();
    co_return;
  }
  const absl::Cleanup end = [this] { --server_.refusing; };
  if (++server_.refusing > kMaxRefusing) co_return;
  wire_->Resume();
  const HttpRefusal full = {.status = 503, .message = kNoRoom};
  co_await Refuse(full);
}

awaitable<void> Connection::RefuseForEnd() {
  wire_->Resume();
  const HttpRefusal ends = {.status = 503, .message = "the server is ending: try again elsewhere"};
  co_await tandem::Refuse(*wire_, ends, kLastWordsTime, kLastWordsTime);
}

std::shared_ptr<Answer> Connection::NewAnswer(const Incoming& incoming) {
  AnswerForm form{.version = incoming.version, .after = incoming.after};
  if (incoming.request.method == "HEAD") form.body = AnswerForm::Body::kLeftOut;
  if (server_.draining) form.after = AfterAnswer::kClose;
  const auto wake = [&io = io_, wire = std::weak_ptr<Wire>(wire_)] {
    asio::post(io, [wire] {
      if (const std::shared_ptr<Wire> alive = wire.lock()) alive->Notify();
    });
  };
  return std::make_shared<Answer>(form, server_.options.max_queued_bytes, server_.options.answers,
                                  wake);
}

void Connection::Serve(Incoming incoming, const std::shared_ptr<Answer>& answer) {
  const auto& authorize = server_.options.authorize;
  if (authorize) {
    if (std::optional<HttpResponse> refusal = authorize(incoming.request)) {
      return answer->Respond(*std::move(refusal));
    }
  }
  server_.routes.Serve(NewExchange(std::move(incoming.request), std::move(incoming.body), answer));
}

awaitable<bool> Connection::AnswerRequest(Incoming incoming) {
  server_.book.Enter(id_, ConnectionState::kAnswering);
  ++server_.requests;
  const std::shared_ptr<Answer> answer = NewAnswer(incoming);
  const absl::Cleanup detach = [&answer] { answer->Detach(); };
  Serve(std::move(incoming), answer);
  const bool sent = co_await Send(answer);
  if (!sent) {
    if (const std::function<void()> gone = answer->TakeGone()) gone();
    const bool unanswered = answer->phase() == Answer::Phase::kAwaited;
    if (wire_->is_stopped() && unanswered) co_await RefuseForEnd();
    co_return false;
  }
  const bool is_usable = !IsOver() && !wire_->drops_input();
  if (answer->after() == AfterAnswer::kKeepAlive && is_usable) co_return true;
  co_await wire_->End(kEndTime);
  co_return false;
}

awaitable<bool> Connection::Send(const std::shared_ptr<Answer>& answer) {
  using Phase = Answer::Phase;
  const HttpServerOptions& options = server_.options;
  Phase phase = Phase::kAwaited;
  TimePoint end_by = kNoDeadline;
  last_write_ = Now();
  while (true) {
    // First: what the handler does while this looks must end the wait below.
    answer->ExpectWake();
    if (!KeepWriting(answer)) co_return false;
    const Phase now_in = answer->phase();
    if (now_in == Phase::kFinished && writing_ == Writing::kNothing) co_return true;
    // An answer that is ended goes also to a client that has only ended its own side.
    const bool ended = now_in != Phase::kAwaited && now_in != Phase::kStreaming;
    if (wire_->is_stopped() || (wire_->has_ended() && !ended)) co_return false;
    if (now_in != phase) {
      phase = now_in;
      if (ended) {
        end_by =
            After(phase == Phase::kAborting ? options.slow_reader_grace : options.max_reading_time);
      }
    }
    if (Now() >= end_by) {
      if (options.answers != nullptr && phase == Phase::kClosing) options.answers->CountUnread();
      co_return false;
    }
    TimePoint wake_at = end_by;
    const Duration pause = answer->keep_alive();
    if (phase == Phase::kStreaming && pause > Duration::zero() && writing_ == Writing::kNothing) {
      wake_at = last_write_ + pause;
      if (Now() >= wake_at) {
        const auto comment = std::make_shared<const std::string>(answer->KeepAlivePart());
        writing_ = Writing::kComment;
        wire_->StartWrite(*comment, comment);
        continue;
      }
    }
    if (wire_->received().size() >= kMaxPipelinedBytes) wire_->DropInput();
    wire_->StartRead(kIdleReadBytes);
    co_await wire_->Wait(wake_at);
  }
}

bool Connection::KeepWriting(const std::shared_ptr<Answer>& answer) {
  while (true) {
    const Wire::Write write = wire_->TakeWrite();
    if (write == Wire::Write::kBusy) return true;
    if (write != Wire::Write::kIdle) {
      const bool ok = write == Wire::Write::kDone;
      if (writing_ == Writing::kAnswer) answer->OnWritten(ok);
      writing_ = Writing::kNothing;
      last_write_ = Now();
      if (!ok) return false;
    }
    const std::string* const next = answer->NextWrite();
    if (next == nullptr) return true;
    writing_ = Writing::kAnswer;
    wire_->StartWrite(*next, answer);
  }
}

// Of a coroutine that has ended.
void LogIfFailed(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const std::exception& what) {
    LogError("an HTTP connection failed what={}", what.what());
  }
}

}  // namespace

bool ServeConnection(asio::io_context& io, ServedHttp& server, int socket, HttpTls* tls,
                     std::string remote) {
  // Filled in once the connection has its place.
  const auto place = std::make_shared<std::weak_ptr<Wire>>();
  const auto state = tls == nullptr ? ConnectionState::kWaiting : ConnectionState::kHandshake;
  const std::optional<ConnectionBook::Id> id = server.book.Add(state, [&io, place] {
    asio::post(io, [place] {
      if (const std::shared_ptr<Wire> wire = place->lock()) wire->Stop();
    });
  });
  if (!id) return false;
  auto wire = std::make_shared<Wire>(io, NewByteStream(io, socket, tls));
  *place = wire;
  auto connection =
      std::make_unique<Connection>(io, server, std::move(wire), *id, std::move(remote));
  Connection& runs = *connection;
  asio::co_spawn(io, runs.Run(),
                 [connection = std::move(connection)](const std::exception_ptr& error) {
                   LogIfFailed(error);
                 });
  return true;
}

bool RefuseConnection(asio::io_context& io, ServedHttp& server, int socket, HttpTls* tls) {
  if (++server.refusing > kMaxRefusing) {
    --server.refusing;
    return false;
  }
  auto wire = std::make_shared<Wire>(io, NewByteStream(io, socket, tls));
  asio::co_spawn(io, RefuseForLackOfRoom(std::move(wire), server),
                 [](const std::exception_ptr& error) { LogIfFailed(error); });
  return true;
}

}  // namespace tandem
