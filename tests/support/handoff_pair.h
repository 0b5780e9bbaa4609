#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "tests/support/loopback_transport.h"
#include "tests/support/recording_sink.h"
#include "tests/support/test_engine.h"

namespace tandem {

enum class Wire : uint8_t { kLoopback, kTcp };

// One request on its way through a prefill and a decode engine.
struct Disaggregated {
  EngineRequest request;
  Reservation reservation;
  Recording prefill;
  Recording decode;
  bool claimed = false;       // the decode engine was given it
  int32_t ended_choice = -1;  // that was told to end early

  // All tokens of one choice, in order.
  std::vector<int32_t> token_ids(int32_t index = 0) const;
};

// A prefill and a decode engine of one process with a wire between them, and the part of the router
// that leads a request through both.
class HandoffPair {
 public:
  HandoffPair(const TestEngineSetup& setup, Wire wire) : HandoffPair(setup, setup, wire) {}
  HandoffPair(const TestEngineSetup& prefill, const TestEngineSetup& decode, Wire wire);

  TestEngine& prefill() { return *prefill_; }
  TestEngine& decode() { return *decode_; }

  // Reserves, then starts the prefill. The result lives as long as the pair.
  absl::StatusOr<Disaggregated*> Start(EngineRequest request);
  // ... unless the decode engine has no room for it now: CANCELLED.
  absl::StatusOr<Disaggregated*> StartIfThereIsRoom(EngineRequest request);
  // Waits for the first tokens; starts the decode when there is more to come.
  void Continue(Disaggregated& run);
  // Waits for both ends; the first status that is not OK. A decode whose prefill failed is ended.
  absl::Status AwaitEnd(Disaggregated& run);

 private:
  Disaggregated* Start(EngineRequest request, const Reservation& reservation);

  LoopbackNetwork network_;
  std::deque<Disaggregated> runs_;
  std::unique_ptr<TestEngine> prefill_;
  std::unique_ptr<TestEngine> decode_;
};

}  // namespace tandem
