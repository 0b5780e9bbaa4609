#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "tests/fault/fault_fleet.h"
#include "tests/fault/fault_schedule.h"
#include "tests/fault/findings.h"
#include "tests/fault/frame_desk.h"
#include "tests/fault/generate_call.h"

namespace tandem {

struct RunningEvent;

// A request of the run and what it comes to when nothing happens.
struct FaultCase {
  v1::GenerateRequest request;
  Generation undisturbed;
};

// How the requests of a run ended.
struct EndingCounts {
  std::atomic<uint64_t> ok = 0;
  std::atomic<uint64_t> cancelled = 0;
  std::atomic<uint64_t> expired = 0;
  std::atomic<uint64_t> wrong = 0;  // all else, found as such
};

// Runs events, several at once: sends the request, brings its fault about at its moment
// (event_moments.cc, frame_moments.cc), and compares what came of it. Thread-safe.
class EventRunner {
 public:
  // Of `cases` one at least IsLong.
  EventRunner(Fleet& fleet, FrameDesk& desk, const std::vector<FaultCase>& cases,
              FaultFindings& findings);

  // Whether the fault came about, at a worker that this request had. The request is sent, and
  // looked at, either way.
  bool Run(const FaultEvent& event);
  // The count of requests that the router has seen is what we have sent: at rest.
  void Settle();
  const EndingCounts& endings() const { return endings_; }

 private:
  using Running = RunningEvent;

  const FaultCase& CaseOf(const FaultEvent& event) const;
  Running MakeRunning(const FaultEvent& event) const;
  bool BringAbout(Running& running);
  bool RunOnFrame(Running& running);
  bool RunWhileHeld(Running& running, FaultTarget held);
  bool RunWhileWaiting(Running& running);
  bool RunWhileMoving(Running& running);
  bool RunWhileLost(Running& running);
  bool RunWhileDraining(Running& running);
  bool RunWhileDecoding(Running& running);
  bool RunWhileIdle(Running& running);

  void Submit(Running& running, const std::function<void()>& before = {},
              const std::function<void()>& meanwhile = {});
  // Sends requests, with turn_ held, until one waits for room.
  std::vector<std::unique_ptr<Running>> FillPools(const Running& running);
  void Send(Running& running);
  void AwaitClaimed(const Running& running) const;
  FrameTrigger TriggerOf(Running& running);
  FrameAction Act(Running& running, const ObservedFrame& frame, size_t proxy);
  FrameAction ActOnFrame(const Running& running) const;
  bool ActOnCall(Running& running);
  // To the process, and on the call, that Act found; once it has fired.
  bool ActAfterFrame(Running& running);
  // The one that the frame came from or goes to; null when it is gone.
  FleetMember* Choose(const Running& running, size_t proxy, uint16_t sender_port) const;
  // The one that the request is most likely at; null when nothing says that there is any.
  FleetMember* Choose(const Running& running) const;
  FleetMember* ChooseIdle(const Running& running) const;
  static bool HadTheWorker(const Running& running);
  bool AwaitAccepted() const;
  bool AwaitStatus(const StatusWatch::Condition& condition) const;
  void Check(const Running& running);
  std::string Mismatch(const Running& running) const;
  void Found(const Running& running, const std::string& what);

  Fleet& fleet_;
  FrameDesk& desk_;
  const std::vector<FaultCase>& cases_;
  std::vector<const FaultCase*> long_cases_;
  FaultFindings& findings_;
  std::unique_ptr<v1::Inference::Stub> stub_;
  EndingCounts endings_;
  std::atomic<uint64_t> sent_ = 0;
  // Held by the one request whose stream has not been seen: so a stream is known by its request.
  absl::Mutex turn_;
};

}  // namespace tandem
