#pragma once

#include <functional>
#include <string>

#include "bench/simulator/kv_link.h"
#include "bench/simulator/worker_core.h"

namespace tandem::simulator {

// Sends the KV of prompts from one prefill worker to decode workers.
// Thread: one at a time.
class SimulatedSender {
 public:
  // Tells the worker with this data address that the KV of a reservation has arrived. False: there
  // is no such worker any more.
  using Deliver = std::function<bool(const std::string& data_address, ReservationId)>;
  // Has the worker do something between two steps.
  using Post = std::function<void(std::function<void()>)>;

  struct Parts {
    WorkerCore& core;
    Deliver deliver;
    Post post;
  };
  SimulatedSender(Parts parts, const LinkModel& link)
      : parts_(std::move(parts)), link_(parts_.core.timeline, link) {}

  // The prefill of the sequence has just ended. It keeps its blocks until its KV has arrived, and
  // then ends.
  void Send(SimulatedSequence& sequence);
  int32_t streams() const { return link_.streams(); }

 private:
  void OnSent(SequenceId id, TimePoint began);

  const Parts parts_;
  KvLink link_;
};

}  // namespace tandem::simulator
