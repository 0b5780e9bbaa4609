#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/v1/inference.pb.h"

namespace tandem {

// What is done.
enum class FaultKind : uint8_t {
  kKill,     // SIGKILL; the process is started again
  kPause,    // SIGSTOP, and SIGCONT before anybody must have noticed
  kStop,     // SIGSTOP, and SIGCONT after the router gave the worker up
  kLeave,    // SIGTERM: it drains and ends; the process is started again
  kFreeze,   // the engine's thread alone is stopped, until the worker says that it is not ready
  kReplace,  // SIGSTOP; another process is started under its name; then SIGKILL or SIGCONT, SIGTERM
  kCancel,   // by the client
  kDeadline,
  kCutBefore,  // of the connection, beside or inside a frame
  kCutInside,
  kCutAfter,
  kHold,  // of a frame, and of all behind it
  kFlipHeader,
  kFlipPayload,
  kDrop,
  kDuplicate,
  kReorder,
};

// To whom.
enum class FaultTarget : uint8_t { kPrefill, kDecode, kUnified, kClient, kFrame };

// In which state of the hand-off.
enum class Moment : uint8_t {
  kAccepted,      // by the router; no worker has answered yet. Route unified: its worker works not
  kWaiting,       // for room at a decode worker
  kQueued,        // reserved; the prefill worker has not begun
  kStreamOpen,    // the first frame of the stream is on its way
  kDataFrame,     // the k-th data frame is
  kCommit,        // the commit is: all data frames were sent
  kAck,           // the commit has come, its answer has not
  kAcknowledged,  // the answer is there
  kMoving,        // the client has its first tokens, the decode worker not yet all KV
  kLost,          // the connection was lost for the third time: the pause before the stream reopens
  kDraining,      // the request is over, half a data frame of it has come
  kDecoding,      // the client has the k-th token
  kIdle,          // the worker has nothing to do
  kRenew,         // frames beside the data: a renewal is on its way
  kCredit,
  kResend,
};

std::string_view Name(FaultKind kind);
std::string_view Name(FaultTarget target);
std::string_view Name(Moment moment);

// One row of the table that a run must fill.
struct FaultRow {
  FaultKind kind{};
  FaultTarget target{};
  Moment moment{};

  friend auto operator<=>(const FaultRow&, const FaultRow&) = default;
};
std::string Name(const FaultRow& row);
// Whether it costs the router a worker for a while. At most one of a role is lost at a time.
bool LosesWorker(const FaultRow& row);
// Whether no request that is at this worker then can do without going elsewhere.
bool MustResume(const FaultRow& row);

// A cluster of its own for each. Slow: KV is held to a rate, so that hand-offs last and overlap.
enum class FaultSetup : uint8_t {
  kTcp,
  kTcpTight,  // decode workers have room for few requests; slow
  kShm,
  kShmSlow,
  kIpc,
  kIpcSlow,
};
inline constexpr FaultSetup kFaultSetups[] = {FaultSetup::kTcp, FaultSetup::kTcpTight,
                                              FaultSetup::kShm, FaultSetup::kShmSlow,
                                              FaultSetup::kIpc, FaultSetup::kIpcSlow};
// "tcp", "tcp-tight", "shm", "shm-slow", "ipc", "ipc-slow".
std::string_view Name(FaultSetup setup);
// Whether KV is held to a rate: times that depend on it say nothing of the system.
bool IsSlow(FaultSetup setup);
// As in --kv-transport. Frames are seen on tcp alone.
std::string_view TransportOf(FaultSetup setup);

// All that is done to such a cluster.
std::vector<FaultRow> AllRows(FaultSetup setup);

// One request and what happens to it, or to others that are in flight with it.
struct FaultEvent {
  uint64_t id = 0;
  FaultRow row;
  size_t request = 0;  // of the requests that the run draws from
  uint64_t seed = 0;   // of what else is drawn for it
};

// `count` events over `rows`, each row as often as the others give or take one, in an order and
// with requests that `seed` draws.
std::vector<FaultEvent> MakeSchedule(uint64_t seed, size_t count, const std::vector<FaultRow>& rows,
                                     size_t num_requests);

// `count` requests: prompts of 1 to 600 tokens, 1 to 3 choices, greedy and sampled, short and long
// outputs. One in eight IsLong, one in three LosesKv. Route, salt and deadline are the event's.
std::vector<v1::GenerateRequest> DrawRequests(uint64_t seed, size_t count, int32_t vocab_size);
// Its prompt has 420 tokens or more, and it does not end with the first it is given.
bool IsLong(const v1::GenerateRequest& request);
// Its KV is rounded or evicted, so that its answer depends on its route and on what it is resumed
// by.
bool LosesKv(const v1::GenerateRequest& request);

}  // namespace tandem
