#include "tests/fault/fault_table.h"

#include <set>
#include <string_view>

#include "fmt/format.h"
#include "fmt/ranges.h"

namespace tandem {
namespace {

template <typename State>
std::string NamesOf(const std::vector<State>& states) {
  std::vector<std::string_view> names;
  for (const State state : states) names.push_back(Name(state));
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string KindsOf(const std::vector<FaultRow>& rows, FaultTarget target) {
  std::vector<std::string_view> kinds;
  for (const FaultRow& row : rows) {
    if (row.target == target) kinds.push_back(Name(row.kind));
  }
  return fmt::format("{}", fmt::join(kinds, ", "));
}

}  // namespace

StatesAtMoment StatesAt(Moment moment) {
  using Send = SendState;
  using Receive = ReceiveState;
  switch (moment) {
    case Moment::kAccepted:
    case Moment::kIdle:
      return {};
    case Moment::kWaiting:
      return {.sender = {}, .receiver = {Receive::kWaiting}};
    case Moment::kQueued:
      return {.sender = {}, .receiver = {Receive::kAwaited}};
    case Moment::kStreamOpen:
      return {.sender = {Send::kStreaming}, .receiver = {Receive::kAwaited}};
    case Moment::kDataFrame:
    case Moment::kResend:
    case Moment::kCredit:
      return {.sender = {Send::kStreaming, Send::kCommitted}, .receiver = {Receive::kAwaited}};
    case Moment::kCommit:
    case Moment::kRenew:
    case Moment::kMoving:
      return {.sender = {Send::kCommitted}, .receiver = {Receive::kAwaited}};
    case Moment::kLost:
      return {.sender = {Send::kLost}, .receiver = {Receive::kAwaited}};
    case Moment::kAck:
      return {.sender = {Send::kCommitted}, .receiver = {Receive::kComplete}};
    case Moment::kAcknowledged:
      return {.sender = {Send::kCommitted, Send::kEnded},
              .receiver = {Receive::kComplete, Receive::kGone}};
    case Moment::kDraining:
      return {.sender = {Send::kEnded}, .receiver = {Receive::kDraining}};
    case Moment::kDecoding:
      return {.sender = {Send::kEnded}, .receiver = {Receive::kGone}};
  }
  return {};
}

std::vector<FaultRow> RowsAt(Moment moment) {
  std::set<FaultRow> rows;
  for (const FaultSetup setup : kFaultSetups) {
    for (const FaultRow& row : AllRows(setup)) {
      if (row.moment == moment) rows.insert(row);
    }
  }
  return {rows.begin(), rows.end()};
}

std::string TableLine(Moment moment) {
  const StatesAtMoment states = StatesAt(moment);
  const std::vector<FaultRow> rows = RowsAt(moment);
  std::string line = fmt::format("| {} | {} | {} |", Name(moment), NamesOf(states.sender),
                                 NamesOf(states.receiver));
  for (const FaultTarget target :
       {FaultTarget::kPrefill, FaultTarget::kDecode, FaultTarget::kUnified, FaultTarget::kClient,
        FaultTarget::kFrame}) {
    line += fmt::format(" {} |", KindsOf(rows, target));
  }
  return line;
}

}  // namespace tandem
