#pragma once

#include <functional>

#include "base/clock.h"
#include "engine/handoff/landing_zone.h"
#include "engine/handoff/receiver.h"
#include "engine/handoff/sender.h"
#include "engine/inbox.h"
#include "engine/loop/choices.h"
#include "engine/loop/host_copies.h"
#include "engine/loop/request_table.h"
#include "engine/options.h"
#include "engine/store_view.h"
#include "kvstore/kv_store.h"
#include "scheduler/latency_model/step_costs.h"
#include "scheduler/latency_model/step_learner.h"
#include "scheduler/scheduler.h"

namespace tandem {

// The state of the engine thread that all parts of its loop work on. Its members refer to each
// other, so it is neither copied nor moved.
// Thread: engine, but for the constructor. Everything that the constructor takes must outlive it.
struct EngineCore {
  struct Parts {
    const EngineOptions& options;
    const Clock& clock;
    Inbox& inbox;
    KvStore& store;
    LandingZone& zone;
    KvSender::Encoding encoding;
    std::function<void()> publish;
  };

  explicit EngineCore(Parts parts)
      : options(parts.options),
        clock(parts.clock),
        store(parts.store),
        costs({.prefills = parts.options.role != Role::kDecode,
               .decodes = parts.options.role != Role::kPrefill}),
        scheduler(parts.options.scheduler, latency),
        copies(parts.store, latency, scheduler),
        view(parts.store, [this](SequenceId id) -> const Sequence& { return requests.Get(id); }),
        sender(parts.store, parts.clock, parts.inbox, parts.encoding,
               parts.options.least_post_bytes),
        receiver(parts.options, {.scheduler = scheduler,
                                 .store = parts.store,
                                 .view = view,
                                 .zone = parts.zone,
                                 .clock = parts.clock}),
        requests({.scheduler = scheduler,
                  .store = parts.store,
                  .copies = copies,
                  .sender = sender,
                  .receiver = receiver,
                  .publish = std::move(parts.publish)}),
        choices({.requests = requests,
                 .scheduler = scheduler,
                 .clock = parts.clock,
                 .block_tokens = parts.options.layout.block_tokens}) {}
  EngineCore(const EngineCore&) = delete;
  EngineCore& operator=(const EngineCore&) = delete;

  const EngineOptions& options;
  const Clock& clock;
  KvStore& store;
  StepLearner latency;
  StepCosts costs;
  Scheduler scheduler;
  HostCopies copies;
  StoreView view;
  KvSender sender;
  KvReceiver receiver;
  RequestTable requests;
  Choices choices;
};

}  // namespace tandem
