#include "server/admin/metrics_server.h"

#include <sys/socket.h>

#include <chrono>
#include <thread>
#include <utility>

#include "base/host_port.h"
#include "base/status.h"
#include "base/thread_name.h"
#include "httplib.h"

namespace tandem {
namespace {

constexpr size_t kThreads = 2;
// A caller that says nothing holds a thread for so long.
constexpr std::chrono::seconds kPatience(2);

void SetSocketOptions(int socket) {
  // Not the library's SO_REUSEPORT: a second process could share the port and take half the calls.
  const int yes = 1;
  setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
}

}  // namespace

struct MetricsServer::Parts {
  httplib::Server server;
  uint16_t port = 0;
  std::thread thread;
};

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const std::string& host,
                                                                    uint16_t port, Pages pages) {
  auto parts = std::make_unique<Parts>();
  httplib::Server& server = parts->server;
  server.set_socket_options(SetSocketOptions);
  server.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  server.set_read_timeout(kPatience);
  server.set_write_timeout(kPatience);
  server.set_keep_alive_max_count(1);
  server.set_payload_max_length(0);
  server.Get("/metrics", [make = std::move(pages.metrics)](const auto&, httplib::Response& answer) {
    answer.set_content(make(), "text/plain; version=0.0.4");
  });
  server.Get("/healthz",
             [is_ready = std::move(pages.is_ready)](const auto&, httplib::Response& answer) {
               const bool ready = is_ready();
               answer.status = ready ? 200 : 503;
               answer.set_content(ready ? "ready\n" : "not ready\n", "text/plain");
             });
  const int bound = port == 0                         ? server.bind_to_any_port(host)
                    : server.bind_to_port(host, port) ? port
                                                      : -1;
  if (bound <= 0) {
    return Unavailable("cannot listen on {} for metrics: choose another --metrics-port",
                       HostPortText(host, port));
  }
  parts->port = static_cast<uint16_t>(bound);
  parts->thread = std::thread([&server] {
    NameThisThread("metrics");
    server.listen_after_bind();
  });
  // Stop would not be seen before.
  while (!server.is_running()) std::this_thread::yield();
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(parts)));
}

MetricsServer::MetricsServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

MetricsServer::~MetricsServer() {
  parts_->server.stop();
  parts_->thread.join();
}

uint16_t MetricsServer::port() const { return parts_->port; }

}  // namespace tandem
