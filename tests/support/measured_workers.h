#pragma once

#include <memory>
#include <string>
#include <utility>

#include "router/cluster/cluster_view.h"
#include "tests/support/worker_views.h"

namespace tandem {

// What steps cost at a worker that is `slowdown` times as slow as another: prefills take
// 10 + 0.1 N ms, decodes 10 + B + 0.001 C ms.
inline std::shared_ptr<const WorkerCosts> MeasuredCosts(double slowdown = 1, double error = 0) {
  StepCoefficients c;
  c.alpha = {.floor_ms = 0, .base_ms = 10 * slowdown, .token_ms = 0.1 * slowdown, .pair_ms = 0};
  c.beta = {.buckets = {{.max_sequences = 64, .base_ms = 10 * slowdown}},
            .sequence_ms = slowdown,
            .context_token_ms = 1e-3 * slowdown};
  WorkerCosts costs;
  costs.steps = StepModel::Create(std::move(c)).value();
  costs.error = error;
  return std::make_shared<const WorkerCosts>(std::move(costs));
}

// An idle worker with 1000 blocks of 16 tokens, 1 kB of KV per token, that has reported its costs.
inline WorkerView MeasuredWorker(const std::string& name, v1::WorkerRole role) {
  WorkerView worker = MakeWorker(name, role);
  worker.costs = MeasuredCosts();
  ChangeInfo(worker, [](WorkerInfo& info) {
    info.max_context_tokens = 100000;
    info.max_step_tokens = 256;
    info.max_sequences = 32;
    info.layout.set_num_layers(10);
    info.layout.set_num_kv_heads(5);
    info.layout.set_head_dim(5);
    info.layout.set_block_tokens(16);
    info.layout.set_dtype("bf16");
  });
  ChangeLoad(worker, [](v1::WorkerLoad& load) {
    load.set_total_blocks(1000);
    load.set_free_blocks(1000);
  });
  return worker;
}

// The worker reports a link to `peer`; a rate of 0: it is not measured yet.
inline void SetLink(WorkerView& prefill, const std::string& peer, double gb_per_s) {
  ChangeLoad(prefill, [&](v1::WorkerLoad& load) {
    v1::LinkStatus* link = nullptr;
    for (v1::LinkStatus& one : *load.mutable_links()) {
      if (one.peer() == peer) link = &one;
    }
    if (link == nullptr) link = load.add_links();
    link->set_peer(peer);
    link->set_transport("tcp");
    link->set_in_use(true);
    link->set_setup_us(100);
    link->set_operation_us(1);
    link->set_probe_gb_per_s(gb_per_s);
  });
}

}  // namespace tandem
