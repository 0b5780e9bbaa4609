#include "tests/fault/fault_schedule.h"

#include <algorithm>
#include <random>
#include <span>
#include <string>
#include <string_view>

#include "base/kv_quality.h"
#include "base/token_eviction.h"
#include "fmt/format.h"

namespace tandem {
namespace {

// Two of these do not fit a pool of 832 tokens (tcp-tight).
constexpr uint64_t kLongPrompt = 420;
constexpr Moment kHandoffMoments[] = {Moment::kAccepted,     Moment::kQueued,  Moment::kStreamOpen,
                                      Moment::kDataFrame,    Moment::kCommit,  Moment::kAck,
                                      Moment::kAcknowledged, Moment::kDecoding};
constexpr Moment kProxyMoments[] = {Moment::kLost, Moment::kDraining};
constexpr Moment kUnseenMoments[] = {Moment::kAccepted, Moment::kQueued, Moment::kDecoding};
constexpr Moment kTightMoments[] = {Moment::kDataFrame, Moment::kCommit, Moment::kDecoding};
constexpr Moment kSlowMoments[] = {Moment::kMoving, Moment::kDecoding};
constexpr Moment kFrameMoments[] = {Moment::kStreamOpen, Moment::kDataFrame, Moment::kCommit,
                                    Moment::kAck,        Moment::kRenew,     Moment::kCredit,
                                    Moment::kResend};
constexpr FaultKind kProcessKinds[] = {FaultKind::kKill, FaultKind::kPause, FaultKind::kStop,
                                       FaultKind::kLeave};
constexpr FaultKind kFrameKinds[] = {
    FaultKind::kCutBefore,  FaultKind::kCutInside, FaultKind::kCutAfter,  FaultKind::kHold,
    FaultKind::kFlipHeader, FaultKind::kDrop,      FaultKind::kDuplicate, FaultKind::kReorder};

using Rows = std::vector<FaultRow>;

void AddProcessRows(Rows& rows, FaultTarget target, Moment moment) {
  for (const FaultKind kind : kProcessKinds) rows.push_back({kind, target, moment});
}

void AddClientRows(Rows& rows, Moment moment) {
  rows.push_back({FaultKind::kCancel, FaultTarget::kClient, moment});
  rows.push_back({FaultKind::kDeadline, FaultTarget::kClient, moment});
}

void AddHandoffRows(Rows& rows, std::span<const Moment> moments) {
  for (const Moment moment : moments) {
    AddProcessRows(rows, FaultTarget::kPrefill, moment);
    AddProcessRows(rows, FaultTarget::kDecode, moment);
    AddClientRows(rows, moment);
  }
}

void AddUnifiedRows(Rows& rows) {
  AddProcessRows(rows, FaultTarget::kUnified, Moment::kAccepted);
  AddProcessRows(rows, FaultTarget::kUnified, Moment::kDecoding);
}

void AddReplaceRows(Rows& rows) {
  for (const FaultTarget target :
       {FaultTarget::kPrefill, FaultTarget::kDecode, FaultTarget::kUnified}) {
    rows.push_back({FaultKind::kReplace, target, Moment::kDecoding});
  }
}

void AddFreezeRows(Rows& rows) {
  for (const FaultTarget target :
       {FaultTarget::kPrefill, FaultTarget::kDecode, FaultTarget::kUnified}) {
    rows.push_back({FaultKind::kFreeze, target, Moment::kDecoding});
    rows.push_back({FaultKind::kFreeze, target, Moment::kIdle});
  }
}

// Nobody but the decode worker knows yet of what waits for room there.
void AddWaitingRows(Rows& rows) {
  AddProcessRows(rows, FaultTarget::kDecode, Moment::kWaiting);
  AddClientRows(rows, Moment::kWaiting);
}

void AddFrameRows(Rows& rows) {
  for (const Moment moment : kFrameMoments) {
    for (const FaultKind kind : kFrameKinds) {
      rows.push_back({kind, FaultTarget::kFrame, moment});
    }
  }
  rows.push_back({FaultKind::kFlipPayload, FaultTarget::kFrame, Moment::kStreamOpen});
  rows.push_back({FaultKind::kFlipPayload, FaultTarget::kFrame, Moment::kDataFrame});
}

}  // namespace

std::string_view Name(FaultKind kind) {
  switch (kind) {
    case FaultKind::kKill:
      return "kill";
    case FaultKind::kPause:
      return "pause";
    case FaultKind::kStop:
      return "stop";
    case FaultKind::kLeave:
      return "leave";
    case FaultKind::kFreeze:
      return "freeze";
    case FaultKind::kReplace:
      return "replace";
    case FaultKind::kCancel:
      return "cancel";
    case FaultKind::kDeadline:
      return "deadline";
    case FaultKind::kCutBefore:
      return "cut-before";
    case FaultKind::kCutInside:
      return "cut-inside";
    case FaultKind::kCutAfter:
      return "cut-after";
    case FaultKind::kHold:
      return "hold";
    case FaultKind::kFlipHeader:
      return "flip-header";
    case FaultKind::kFlipPayload:
      return "flip-payload";
    case FaultKind::kDrop:
      return "drop";
    case FaultKind::kDuplicate:
      return "duplicate";
    case FaultKind::kReorder:
      return "reorder";
  }
  return "?";
}

std::string_view Name(FaultTarget target) {
  switch (target) {
    case FaultTarget::kPrefill:
      return "prefill";
    case FaultTarget::kDecode:
      return "decode";
    case FaultTarget::kUnified:
      return "unified";
    case FaultTarget::kClient:
      return "client";
    case FaultTarget::kFrame:
      return "frame";
  }
  return "?";
}

std::string_view Name(Moment moment) {
  switch (moment) {
    case Moment::kAccepted:
      return "accepted";
    case Moment::kWaiting:
      return "waiting";
    case Moment::kQueued:
      return "queued";
    case Moment::kStreamOpen:
      return "stream-open";
    case Moment::kDataFrame:
      return "data-frame";
    case Moment::kCommit:
      return "commit";
    case Moment::kAck:
      return "ack";
    case Moment::kAcknowledged:
      return "acknowledged";
    case Moment::kMoving:
      return "moving";
    case Moment::kLost:
      return "lost";
    case Moment::kDraining:
      return "draining";
    case Moment::kDecoding:
      return "decoding";
    case Moment::kIdle:
      return "idle";
    case Moment::kRenew:
      return "renew";
    case Moment::kCredit:
      return "credit";
    case Moment::kResend:
      return "resend";
  }
  return "?";
}

std::string_view Name(FaultSetup setup) {
  switch (setup) {
    case FaultSetup::kTcp:
      return "tcp";
    case FaultSetup::kTcpTight:
      return "tcp-tight";
    case FaultSetup::kShm:
      return "shm";
    case FaultSetup::kShmSlow:
      return "shm-slow";
    case FaultSetup::kIpc:
      return "ipc";
    case FaultSetup::kIpcSlow:
      return "ipc-slow";
  }
  return "?";
}

bool IsSlow(FaultSetup setup) {
  return setup == FaultSetup::kTcpTight || setup == FaultSetup::kShmSlow ||
         setup == FaultSetup::kIpcSlow;
}

std::string_view TransportOf(FaultSetup setup) { return Name(setup).substr(0, 3); }

std::string Name(const FaultRow& row) {
  return fmt::format("{} {} {}", Name(row.moment), Name(row.target), Name(row.kind));
}

bool LosesWorker(const FaultRow& row) {
  return row.kind == FaultKind::kKill || row.kind == FaultKind::kStop ||
         row.kind == FaultKind::kLeave || row.kind == FaultKind::kFreeze ||
         row.kind == FaultKind::kReplace;
}

// Of what leaves each may end where it is; from a prefill worker all may have come.
bool MustResume(const FaultRow& row) {
  const bool lost = LosesWorker(row) && row.kind != FaultKind::kLeave;
  if (row.target == FaultTarget::kDecode || row.target == FaultTarget::kUnified) return lost;
  return lost && (row.moment == Moment::kAccepted || row.moment == Moment::kQueued ||
                  row.moment == Moment::kMoving);
}

std::vector<FaultRow> AllRows(FaultSetup setup) {
  Rows rows;
  switch (setup) {
    case FaultSetup::kTcp:
      AddHandoffRows(rows, kHandoffMoments);
      AddHandoffRows(rows, kProxyMoments);
      rows.push_back({FaultKind::kCutInside, FaultTarget::kFrame, Moment::kDraining});
      AddUnifiedRows(rows);
      AddFreezeRows(rows);
      AddReplaceRows(rows);
      rows.push_back({FaultKind::kReplace, FaultTarget::kPrefill, Moment::kDataFrame});
      rows.push_back({FaultKind::kReplace, FaultTarget::kDecode, Moment::kDataFrame});
      AddFrameRows(rows);
      break;
    case FaultSetup::kTcpTight:
      AddWaitingRows(rows);
      AddHandoffRows(rows, kTightMoments);
      break;
    case FaultSetup::kShm:
    case FaultSetup::kIpc:
      AddHandoffRows(rows, kUnseenMoments);
      AddUnifiedRows(rows);
      AddFreezeRows(rows);
      AddReplaceRows(rows);
      break;
    case FaultSetup::kShmSlow:
    case FaultSetup::kIpcSlow:
      AddHandoffRows(rows, kSlowMoments);
      break;
  }
  return rows;
}

std::vector<FaultEvent> MakeSchedule(uint64_t seed, size_t count, const std::vector<FaultRow>& rows,
                                     size_t num_requests) {
  std::mt19937_64 random(seed);
  std::vector<FaultEvent> events;
  std::vector<FaultRow> round;
  for (size_t i = 0; i < count; ++i) {
    if (round.empty()) {
      round = rows;
      std::shuffle(round.begin(), round.end(), random);
    }
    events.push_back(
        {.id = i, .row = round.back(), .request = random() % num_requests, .seed = random()});
    round.pop_back();
  }
  return events;
}

namespace {

// Every class that loses KV, and every policy that evicts it, in turn.
void SetLoss(size_t number, v1::GenerateRequest& request) {
  const size_t classes = kKvQualityNames.size() - 1;
  const size_t kind = number % (classes + kTokenEvictionPolicyNames.size());
  if (kind < classes) return request.set_kv_quality(std::string(kKvQualityNames[kind + 1]));
  const std::string_view policy = kTokenEvictionPolicyNames[kind - classes];
  request.set_kv_eviction(fmt::format("{}:3,sink=2,recent=6", policy));
}

}  // namespace

bool LosesKv(const v1::GenerateRequest& request) {
  return !request.kv_quality().empty() || !request.kv_eviction().empty();
}

std::vector<v1::GenerateRequest> DrawRequests(uint64_t seed, size_t count, int32_t vocab_size) {
  std::mt19937_64 random(seed);
  const auto draw = [&random](uint64_t least, uint64_t most) {
    return least + random() % (most - least + 1);
  };
  std::vector<v1::GenerateRequest> requests;
  for (size_t i = 0; i < count; ++i) {
    v1::GenerateRequest request;
    const bool is_long = i % 8 == 0;
    const uint64_t longest = draw(0, 3) == 0 ? 600 : 120;
    const uint64_t length = is_long ? draw(kLongPrompt, 600) : draw(1, longest);
    for (uint64_t at = 0; at < length; ++at) {
      const uint64_t id = draw(0, static_cast<uint64_t>(vocab_size) - 1);
      request.mutable_token_ids()->add_ids(static_cast<int32_t>(id));
    }
    request.set_n(static_cast<int32_t>(draw(0, 2) == 0 ? draw(2, 3) : 1));
    request.set_max_tokens(static_cast<int32_t>(draw(12, 48)));
    request.set_ignore_eos(draw(0, 3) != 0 || is_long);
    v1::SamplingParams& sampling = *request.mutable_sampling();
    sampling.set_seed(random());
    sampling.set_temperature(draw(0, 1) == 0 ? 0.0f : 0.9f);
    if (draw(0, 2) == 0) sampling.set_repetition_penalty(1.1f);
    if (i % 3 == 1) SetLoss(i / 3, request);
    requests.push_back(std::move(request));
  }
  return requests;
}

bool IsLong(const v1::GenerateRequest& request) {
  return request.token_ids().ids_size() >= static_cast<int>(kLongPrompt) && request.ignore_eos();
}

}  // namespace tandem
