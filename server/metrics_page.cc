#include "server/metrics_page.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "prometheus/text_serializer.h"

namespace tandem {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<prometheus::ClientMetric::Label>;

// Families in the order in which they are first given a value.
class Page {
 public:
  void Gauge(std::string_view name, std::string_view help, Labels labels, double value) {
    Add(name, help, MetricType::Gauge, std::move(labels)).gauge.value = value;
  }
  void Counter(std::string_view name, std::string_view help, Labels labels, uint64_t value) {
    Add(name, help, MetricType::Counter, std::move(labels)).counter.value =
        static_cast<double>(value);
  }

  std::string Text() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  prometheus::ClientMetric& Add(std::string_view name, std::string_view help, MetricType type,
                                Labels labels) {
    prometheus::ClientMetric& metric = Family(name, help, type).metric.emplace_back();
    metric.label = std::move(labels);
    return metric;
  }

  MetricFamily& Family(std::string_view name, std::string_view help, MetricType type) {
    for (MetricFamily& family : families_) {
      if (family.name == name) return family;
    }
    families_.push_back({std::string(name), std::string(help), type, {}});
    return families_.back();
  }

  std::vector<MetricFamily> families_;
};

Labels With(Labels labels, std::string name, std::string value) {
  labels.push_back({std::move(name), std::move(value)});
  return labels;
}

constexpr double kPerMilli = 1e-3;
constexpr double kPerMicro = 1e-6;
constexpr double kPerGiga = 1e9;

void AddTokenizing(const v1::TokenizeUse& use, Page& page) {
  const char* const waiting = "Texts that wait to be tokenized or are being tokenized";
  page.Gauge("tandem_tokenize_texts", waiting, {{"length", "short"}}, use.short_texts());
  page.Gauge("tandem_tokenize_texts", waiting, {{"length", "long"}}, use.long_texts());
  page.Gauge("tandem_tokenize_long_text_bytes", "Bytes of the long texts among these", {},
             static_cast<double>(use.long_text_bytes()));
  page.Counter("tandem_tokenized_texts_total", "Texts tokenized", {}, use.texts_total());
  page.Counter("tandem_tokenize_refused_total", "Texts refused because too much text waited", {},
               use.refused());
}

void AddAnswers(const v1::AnswerBufferUse& use, Page& page) {
  page.Gauge("tandem_unread_answer_bytes", "Bytes of answers that clients have not read", {},
             static_cast<double>(use.bytes()));
  const char* const ended = "Answers ended because clients did not read";
  page.Counter("tandem_answers_ended_unread_total", ended, {{"why", "limit"}}, use.refused());
  page.Counter("tandem_answers_ended_unread_total", ended, {{"why", "deadline"}}, use.unread());
}

void AddConnections(const v1::ConnectionUse& use, const Labels& labels, Page& page) {
  page.Gauge("tandem_connections", "Open connections to the gRPC port", labels, use.open());
  page.Gauge("tandem_connections_limit", "Connections beyond it are refused", labels, use.limit());
  page.Counter("tandem_connections_refused_total", "Connections closed because of the limit",
               labels, use.refused());
}

// What the router and each worker tell alike of themselves.
template <typename Status>
void AddProcess(const Status& status, const Labels& labels, Page& page) {
  AddConnections(status.connections(), labels, page);
  page.Counter("tandem_log_lines_dropped_total", "Lines of the log that nobody read in time",
               labels, status.log_lines_dropped());
}

void AddRouter(const v1::GetStatusResponse& status, Page& page) {
  AddProcess(status, {{"server", "router"}}, page);
  page.Gauge("tandem_ready", "1 when at least one route can be served", {}, status.ready());
  page.Gauge("tandem_requests_in_flight", "Requests that have not ended", {},
             status.requests_in_flight());
  page.Counter("tandem_requests_total", "Requests taken", {}, status.requests_total());
  page.Counter("tandem_leases_lapsed_total", "Workers that were not heard of for a whole lease", {},
               status.leases_lapsed());
  AddTokenizing(status.tokenizing(), page);
  AddAnswers(status.answers(), page);
  const v1::ResumeUse& resumes = status.resumes();
  for (const v1::ResumeCause& one : resumes.causes()) {
    page.Counter("tandem_resumes_total", "Requests that went on at other workers",
                 {{"cause", one.cause()}}, one.resumes());
  }
  page.Counter("tandem_resumes_given_up_total", "Requests that nobody could go on with", {},
               resumes.gave_up());
  page.Gauge("tandem_resume_pause_p50_seconds",
             "Pauses of requests that went on elsewhere, of late, from the loss noticed", {},
             resumes.p50_ms() * kPerMilli);
  page.Gauge("tandem_resume_pause_p99_seconds",
             "Pauses of requests that went on elsewhere, of late, from the loss noticed", {},
             resumes.p99_ms() * kPerMilli);
  page.Gauge("tandem_resume_waited_p50_seconds",
             "The same pauses as clients saw them, from the last token before", {},
             resumes.waited().p50_ms() * kPerMilli);
  page.Gauge("tandem_resume_waited_p99_seconds",
             "The same pauses as clients saw them, from the last token before", {},
             resumes.waited().p99_ms() * kPerMilli);
  const v1::RerouteUse& reroutes = status.reroutes();
  for (const auto& [kind, count] :
       {std::pair("other_worker", reroutes.other_worker()),
        std::pair("to_unified", reroutes.to_unified()),
        std::pair("to_disaggregated", reroutes.to_disaggregated()),
        std::pair("asked_again", reroutes.asked_again()), std::pair("moved", reroutes.moved())}) {
    page.Counter("tandem_reroutes_total",
                 "Requests that a worker refused for want of room, or that were moved out of its "
                 "queue",
                 {{"kind", kind}}, count);
  }
}

void AddBlocks(const v1::WorkerStatus& worker, const Labels& labels, Page& page) {
  const v1::KvUse& kv = worker.kv();
  for (const auto& [state, blocks] :
       {std::pair("total", worker.total_blocks()), std::pair("free", worker.free_blocks()),
        std::pair("cached", kv.cached_blocks()), std::pair("idle", kv.idle_blocks()),
        std::pair("shared", kv.shared_blocks()), std::pair("pinned", kv.pinned_blocks()),
        std::pair("swapped", kv.swapped_blocks())}) {
    page.Gauge("tandem_kv_blocks", "KV blocks of the worker; docs/kv_store.md says of each state",
               With(labels, "state", state), blocks);
  }
  page.Counter("tandem_prefix_query_tokens_total", "Prompt tokens looked up in the prefix cache",
               labels, kv.query_tokens());
  page.Counter("tandem_prefix_hit_tokens_total", "Prompt tokens found there", labels,
               kv.hit_tokens());
  for (const auto& [how, count] :
       {std::pair("recompute", kv.preempted_recompute()), std::pair("swap", kv.preempted_swap())}) {
    page.Counter("tandem_preemptions_total", "Sequences that made room for others",
                 With(labels, "how", how), count);
  }
  page.Gauge("tandem_host_kv_budget_bytes", "For KV that leaves the device", labels,
             static_cast<double>(kv.host_budget_bytes()));
  page.Gauge("tandem_host_kv_used_bytes", "Of that budget", labels,
             static_cast<double>(kv.host_used_bytes()));
}

void AddHandoffs(const v1::WorkerStatus& worker, const Labels& labels, Page& page) {
  const v1::HandoffUse& use = worker.handoffs();
  for (const auto& [state, count] :
       {std::pair("sending", use.sending()), std::pair("awaited", use.reservations()),
        std::pair("waiting", use.waiting_reservations()),
        std::pair("draining", use.draining_reservations())}) {
    page.Gauge("tandem_handoffs", "Hand-offs now: streams that are sent; reservations",
               With(labels, "state", state), count);
  }
  for (const auto& [what, count] :
       {std::pair("sent", use.sent()), std::pair("received", use.received()),
        std::pair("retried", use.retried()), std::pair("lapsed", use.lapsed()),
        std::pair("refused", use.refused())}) {
    page.Counter("tandem_handoffs_total", "Hand-offs, by how they went", With(labels, "what", what),
                 count);
  }
  for (const auto& [why, count] :
       {std::pair("corrupted", use.corrupted_frames()), std::pair("stale", use.stale_frames()),
        std::pair("unauthenticated", use.stranger_frames())}) {
    page.Counter("tandem_refused_frames_total", "Frames of peers that were not taken",
                 With(labels, "why", why), count);
  }
  page.Counter("tandem_refused_connections_total", "Connections closed because of these", labels,
               use.connections_closed());
  page.Gauge("tandem_transfer_buffer_bytes", "Memory for KV under way", labels,
             static_cast<double>(use.buffer_bytes()));
  page.Counter("tandem_kv_sent_bytes_total", "To other workers, headers included", labels,
               worker.kv_bytes_sent());
  page.Counter("tandem_kv_received_bytes_total", "From other workers, headers included", labels,
               worker.kv_bytes_received());
}

void AddLink(const v1::LinkStatus& link, const Labels& labels, Page& page) {
  if (!link.unreachable().empty()) return;
  page.Gauge("tandem_link_in_use", "1 for the link that the latest hand-off to this peer took",
             labels, link.in_use());
  page.Gauge("tandem_link_failed", "1 after a hand-off or probe failed, until one succeeds", labels,
             !link.failure().empty() || !link.probe_failure().empty());
  page.Gauge("tandem_link_probe_bytes_per_second", "By the latest probe", labels,
             link.probe_gb_per_s() * kPerGiga);
  page.Gauge("tandem_link_best_probe_bytes_per_second", "Since the peer started", labels,
             link.best_probe_gb_per_s() * kPerGiga);
  page.Gauge("tandem_link_bytes_per_second", "Of late, while it was full; 0: not measured", labels,
             link.gb_per_s() * kPerGiga);
  page.Gauge("tandem_link_fastest_bytes_per_second", "The fastest of late; 0: not measured", labels,
             link.fastest_gb_per_s() * kPerGiga);
  page.Gauge("tandem_link_setup_seconds", "To make a connection", labels,
             link.setup_us() * kPerMicro);
  page.Gauge("tandem_link_operation_seconds", "Per frame", labels, link.operation_us() * kPerMicro);
  page.Counter("tandem_link_bytes_total", "Carried", labels, link.bytes());
  page.Gauge("tandem_link_in_flight_bytes", "Sent and not acknowledged", labels,
             static_cast<double>(link.bytes_in_flight()));
  page.Counter("tandem_link_resent_frames_total", "Frames that were asked for again", labels,
               link.resent_frames());
  page.Counter("tandem_link_fallbacks_total", "Times that it was given up for a worse link", labels,
               link.fallbacks());
}

// Until the router has named a peer its links are under its address, which changes with each start.
bool IsNamed(const v1::LinkStatus& link, const v1::GetStatusResponse& status) {
  return std::ranges::any_of(status.workers(), [&link](const v1::WorkerStatus& worker) {
    return worker.name() == link.peer();
  });
}

void AddLinks(const v1::WorkerStatus& worker, const v1::GetStatusResponse& status, Page& page) {
  for (const v1::LinkStatus& link : worker.links()) {
    if (!IsNamed(link, status)) continue;
    AddLink(link,
            {{"worker", worker.name()}, {"peer", link.peer()}, {"transport", link.transport()}},
            page);
  }
}

void AddWorker(const v1::WorkerStatus& worker, Page& page) {
  const Labels labels = {{"worker", worker.name()}, {"role", worker.role()}};
  page.Gauge("tandem_worker_ready", "1 when it gets requests", labels,
             worker.alive() && worker.not_ready().empty());
  page.Gauge("tandem_worker_starting", "1 while it loads weights or warms up: others come first",
             labels, worker.starting());
  page.Gauge("tandem_worker_heartbeat_age_seconds", "Since it was heard of", labels,
             worker.heartbeat_age_ms() * kPerMilli);
  page.Gauge("tandem_worker_running", "Sequences computed", labels, worker.running());
  page.Gauge("tandem_worker_waiting", "Sequences that wait", labels, worker.waiting());
  page.Counter("tandem_worker_requests_total", "Requests ended", labels,
               worker.requests_finished());
  page.Counter("tandem_worker_prompt_tokens_total", "Prompt tokens computed", labels,
               worker.prompt_tokens());
  page.Counter("tandem_worker_output_tokens_total", "Tokens sampled", labels,
               worker.output_tokens());
  AddProcess(worker, {{"server", worker.name()}}, page);
  AddBlocks(worker, labels, page);
  AddHandoffs(worker, labels, page);
}

}  // namespace

std::string MetricsPage(const v1::GetStatusResponse& status) {
  Page page;
  AddRouter(status, page);
  for (const v1::WorkerStatus& worker : status.workers()) {
    AddWorker(worker, page);
    AddLinks(worker, status, page);
  }
  return page.Text();
}

}  // namespace tandem
