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
#include "server/http/polled_stream.h"
#include "server/http/request_reader.h"

namespace tandem {
namespace {

namespace asio = boost::asio;
using asio::awaitable;

// How much is read at once while a connection is idle: little, because each has such a buffer.
constexpr size_t kIdleReadBytes = 4 << 10;
// How much of later requests is kept that a client sends before the answer to an earlier one. More
// is thrown away, and the connection ends after that answer: if reading stopped instead, the server
// would not see that the client is gone.
constexpr size_t kMaxPipelinedBytes = PolledStream::kKeptCapacity;
// How long a client may pause while the connection is being ended, before it is closed.
constexpr Duration kEndTime = std::chrono::seconds(2);
// How long the write of a refusal or of "100 Continue" may take.
constexpr Duration kShortWriteTime = std::chrono::seconds(5);
// How long the write of a refusal, and the wait for the client's end after it, may each take while
// the server ends.
constexpr Duration kLastWordsTime = std::chrono::milliseconds(200);
// Connections that are refused at a time; each takes a descriptor and a buffer.
constexpr int kMaxRefusing = 64;

TimePoint Now() { return std::chrono::steady_clock::now(); }

TimePoint After(Duration duration) { return Now() + duration; }

awaitable<void> Refuse(PolledStream& stream, const HttpRefusal& refusal, Duration write_time,
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
  const bool sent = co_await stream.WriteAll(all, write_time);
  if (sent) co_await stream.End(end_time);
}

constexpr char kNoRoom[] = "the server has too many connections: try again later";

// Answers 503 on a connection that there is no room for. It counts in ServedHttp::refusing until it
// ends.
awaitable<void> RefuseForLackOfRoom(std::shared_ptr<PolledStream> stream, ServedHttp& server) {
  const absl::Cleanup end = [&stream, &server] {
    stream->Close();
    --server.refusing;
  };
  const HttpRefusal full = {.status = 503, .message = kNoRoom};
  const bool usable = co_await stream->Handshake(kShortWriteTime);
  if (usable) co_await Refuse(*stream, full, kShortWriteTime, kEndTime);
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
  Connection(asio::io_context& io, ServedHttp& server, std::shared_ptr<PolledStream> stream,
             ConnectionBook::Id id, std::string remote)
      : io_(io), server_(server), stream_(std::move(stream)), id_(id), remote_(std::move(remote)) {}
  ~Connection() {
    stream_->Close();
    server_.book.Remove(id_);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  awaitable<void> Run() {
    const TimePoint handshake_end = After(server_.options.header_timeout);
    bool usable = co_await stream_->Handshake(server_.options.header_timeout);
    if (!usable) {
      if (Now() >= handshake_end) server_.refusals.Add(RefusalCounts::kSilent);
      co_return;
    }
    if (const absl::Status refused = stream_->refusal(); !refused.ok()) {
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
  // Reads the next request, whose first byte may take `patience`. Nothing when the connection is
  // over.
  awaitable<std::optional<Incoming>> ReadRequest(Duration patience);
  // Gives up a request that has come as far as `stage`, because the connection has to make room for
  // another one or the server ends.
  awaitable<void> LeaveUnread(RequestReader::State stage);
  awaitable<void> Refuse(const HttpRefusal& refusal) {
    server_.refusals.Add(refusal.status);
    return tandem::Refuse(*stream_, refusal, kShortWriteTime, kEndTime);
  }
  // Has a request answered and sends the answer. False when the connection is over.
  awaitable<bool> AnswerRequest(Incoming incoming);
  // Lets `authorize` refuse the request, or passes it to its handler.
  void Serve(Incoming incoming, const std::shared_ptr<Answer>& answer);
  // Answers 503 because the server ends before the request was answered: its client may try another
  // server.
  awaitable<void> RefuseForEnd();
  // Sends an answer while its handler makes it. Returns true once it is sent, false when the client
  // has gone.
  awaitable<bool> Send(const std::shared_ptr<Answer>& answer);
  // Takes note of writes that have ended and begins the next ones. False when the client is gone.
  bool KeepWriting(const std::shared_ptr<Answer>& answer);
  std::shared_ptr<Answer> NewAnswer(const Incoming& incoming);
  bool IsOver() const { return stream_->has_ended() || stream_->is_stopped(); }

  asio::io_context& io_;
  ServedHttp& server_;
  const std::shared_ptr<PolledStream> stream_;
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
    // Checked before each request, also between requests that came together and are complete at
    // once.
    if (stream_->is_stopped()) {
      co_await LeaveUnread(stage);
      co_return std::nullopt;
    }
    stream_->Consume(reader.Read(stream_->received()));
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
      if (state == State::kBody && reader.expects_continue() && stream_->received().empty()) {
        const auto go_on = std::make_shared<const std::string>("HTTP/1.1 100 Continue\r\n\r\n");
        const bool sent = co_await stream_->WriteAll(go_on, kShortWriteTime);
        if (!sent) co_return std::nullopt;
      }
    } else if (Now() >= deadline) {
      if (state == State::kEmpty) {
        if (!was_used_) server_.refusals.Add(RefusalCounts::kSilent);
        co_await stream_->End(kEndTime);
      } else {
        const HttpRefusal late = {.status = 408, .message = "the request did not come in time"};
        co_await Refuse(late);
      }
      co_return std::nullopt;
    }
    stream_->StartRead(state == State::kBody ? PolledStream::kBodyReadBytes : kIdleReadBytes);
    co_await stream_->Wait(deadline);
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
  stream_->Resume();
  const HttpRefusal full = {.status = 503, .message = kNoRoom};
  co_await Refuse(full);
}

awaitable<void> Connection::RefuseForEnd() {
  stream_->Resume();
  const HttpRefusal ends = {.status = 503, .message = "the server is ending: try again elsewhere"};
  co_await tandem::Refuse(*stream_, ends, kLastWordsTime, kLastWordsTime);
}

std::shared_ptr<Answer> Connection::NewAnswer(const Incoming& incoming) {
  AnswerForm form{.version = incoming.version, .after = incoming.after};
  if (incoming.request.method == "HEAD") form.body = AnswerForm::Body::kLeftOut;
  if (server_.draining) form.after = AfterAnswer::kClose;
  const auto wake = [&io = io_, stream = std::weak_ptr<PolledStream>(stream_)] {
    asio::post(io, [stream] {
      if (const std::shared_ptr<PolledStream> alive = stream.lock()) alive->Notify();
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
    if (stream_->is_stopped() && unanswered) co_await RefuseForEnd();
    co_return false;
  }
  const bool is_usable = !IsOver() && !stream_->drops_input();
  if (answer->after() == AfterAnswer::kKeepAlive && is_usable) co_return true;
  co_await stream_->End(kEndTime);
  co_return false;
}

awaitable<bool> Connection::Send(const std::shared_ptr<Answer>& answer) {
  using Phase = Answer::Phase;
  const HttpServerOptions& options = server_.options;
  Phase phase = Phase::kAwaited;
  TimePoint end_by = kNoDeadline;
  last_write_ = Now();
  while (true) {
    // To be called first: what the handler does while the following lines look must end the wait
    // below.
    answer->ExpectWake();
    if (!KeepWriting(answer)) co_return false;
    const Phase now_in = answer->phase();
    if (now_in == Phase::kFinished && writing_ == Writing::kNothing) co_return true;
    // An answer that its handler has ended is also sent to a client that has shut down its own
    // sending side.
    const bool ended = now_in != Phase::kAwaited && now_in != Phase::kStreaming;
    if (stream_->is_stopped() || (stream_->has_ended() && !ended)) co_return false;
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
        stream_->StartWrite(*comment, comment);
        continue;
      }
    }
    if (stream_->received().size() >= kMaxPipelinedBytes) stream_->DropInput();
    stream_->StartRead(kIdleReadBytes);
    co_await stream_->Wait(wake_at);
  }
}

bool Connection::KeepWriting(const std::shared_ptr<Answer>& answer) {
  while (true) {
    const PolledStream::Write write = stream_->TakeWrite();
    if (write == PolledStream::Write::kBusy) return true;
    if (write != PolledStream::Write::kIdle) {
      const bool ok = write == PolledStream::Write::kDone;
      if (writing_ == Writing::kAnswer) answer->OnWritten(ok);
      writing_ = Writing::kNothing;
      last_write_ = Now();
      if (!ok) return false;
    }
    const std::string* const next = answer->NextWrite();
    if (next == nullptr) return true;
    writing_ = Writing::kAnswer;
    stream_->StartWrite(*next, answer);
  }
}

// Logs the exception, if any, with which a coroutine ended.
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
  // Add needs the callback before the stream exists, so the callback finds the stream through this
  // pointer.
  const auto place = std::make_shared<std::weak_ptr<PolledStream>>();
  const auto state = tls == nullptr ? ConnectionState::kWaiting : ConnectionState::kHandshake;
  const std::optional<ConnectionBook::Id> id = server.book.Add(state, [&io, place] {
    asio::post(io, [place] {
      if (const std::shared_ptr<PolledStream> stream = place->lock()) stream->Stop();
    });
  });
  if (!id) return false;
  auto stream = std::make_shared<PolledStream>(io, NewByteStream(io, socket, tls));
  *place = stream;
  auto connection =
      std::make_unique<Connection>(io, server, std::move(stream), *id, std::move(remote));
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
  auto stream = std::make_shared<PolledStream>(io, NewByteStream(io, socket, tls));
  asio::co_spawn(io, RefuseForLackOfRoom(std::move(stream), server),
                 [](const std::exception_ptr& error) { LogIfFailed(error); });
  return true;
}

}  // namespace tandem
