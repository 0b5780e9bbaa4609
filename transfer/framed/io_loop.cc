#include "transfer/framed/io_loop.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "base/thread_name.h"

namespace tandem {

absl::StatusOr<IoLoop::Sockets> IoLoop::Sockets::Open() {
  ASSIGN_OR_RETURN(ConnectionTable table, ConnectionTable::Create());
  ASSIGN_OR_RETURN(CommandQueue commands, CommandQueue::Create());
  return Sockets{.table = std::move(table), .commands = std::move(commands)};
}

IoLoop::IoLoop(const FramedOptions& options, Sockets sockets, Medium& medium,
               FrameReceiver& receiver, PayloadPath& path, OpenStreams& streams, Links& links,
               TransportCounters& counters)
    : options_(options),
      medium_(medium),
      path_(path),
      streams_(streams),
      commands_(std::move(sockets.commands)),
      table_(std::move(sockets.table)),
      acceptor_(options_, medium, receiver, path, table_, counters),
      peers_(options_, medium, path, table_, streams, links, counters) {
  table_.Watch(commands_.wake_fd(), ConnectionTable::kWakeId);
  thread_ = std::thread([this] { Run(); });
}

IoLoop::~IoLoop() {
  commands_.Stop();
  thread_.join();
}

void IoLoop::Run() {
  NameThisThread(fmt::format("kv-{}", medium_.name()).c_str());
  while (!commands_.stopping()) {
    if (options_.turns != nullptr && medium_.health().ok()) {
      options_.turns->fetch_add(1, std::memory_order_relaxed);
    }
    const int most_ms = WaitMilliseconds();
    const int wait_ms = most_ms != 0 && commands_.FallAsleep() ? most_ms : 0;
    for (const uint64_t id : table_.Wait(wait_ms)) Handle(id);
    ExecuteCommands();
    peers_.RunTimers(std::chrono::steady_clock::now());
    table_.AdvanceUnfinished();
    peers_.EndStreams();
    CloseOverdue();
    AdvanceThoseWithoutRoom();
  }
  Shutdown();
}

int IoLoop::WaitMilliseconds() const {
  // A callback may have dropped a stream whose payloads took up room.
  if (table_.has_unfinished() || path_.has_turn()) return 0;
  const TimePoint now = std::chrono::steady_clock::now();
  const TimePoint earliest = std::min({table_.earliest_deadline(), acceptor_.accept_again(),
                                       peers_.next_timer(now), now + kLongestSleep});
  // Rounded up, so that the loop does not spin through the last millisecond.
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(earliest - now).count();
  return static_cast<int>(std::max<int64_t>(left, 0));
}

void IoLoop::Handle(uint64_t id) {
  if (id == ConnectionTable::kWakeId) return commands_.ClearWake();
  if (id == ConnectionTable::kListenerId) return acceptor_.Accept();
  table_.Advance(id);
  peers_.EndStreams();
}

void IoLoop::ExecuteCommands() {
  for (StreamCommand& command : commands_.TakeAll()) peers_.Execute(command);
}

void IoLoop::AdvanceThoseWithoutRoom() {
  while (const std::optional<uint64_t> id = path_.BeginTurn()) {
    table_.Advance(*id);
    path_.EndTurn();
  }
  peers_.EndStreams();
}

void IoLoop::CloseOverdue() {
  const TimePoint now = std::chrono::steady_clock::now();
  for (const uint64_t id : table_.Overdue(now)) {
    if (acceptor_.IsUnauthenticated(id)) {
      acceptor_.CloseUnauthenticated(id, Unavailable("it has said nothing for too long"));
    } else {
      table_.Close(id, Unavailable("timed out: nothing moved"));
    }
  }
  peers_.CloseUnanswering(now);
  acceptor_.ResumeIfDue(now);
  peers_.EndStreams();
}

void IoLoop::Shutdown() {
  const absl::Status status = Unavailable("the transport was shut down");
  table_.CloseAll(status);
  peers_.EndStreams();
  streams_.Close(status);
  // Whoever aborted a stream meanwhile waits for this.
  for (StreamCommand& command : commands_.TakeAll()) {
    if (auto* abort = std::get_if<AbortCommand>(&command)) abort->done->Notify();
  }
}

}  // namespace tandem
