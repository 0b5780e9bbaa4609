// What connections to the HTTP server cost: memory of one with an idle stream, and how many new
// ones are served in a second. bench/http_streams [streams] [connections]

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "server/http/http_server.h"
#include "server/services/descriptor_limit.h"
#include "tests/support/http_peer.h"

namespace tandem {
namespace {

// Resident memory of this process in bytes.
size_t Resident() {
  size_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

void Tell(int pipe) {
  if (write(pipe, "x", 1) != 1) std::abort();
}

void Hear(int pipe) {
  char byte = 0;
  if (read(pipe, &byte, 1) != 1) std::abort();
}

// The client is a process of its own, so that its memory is not counted.
[[noreturn]] void RunClient(int from_server, int to_server, int streams, int connections) {
  uint16_t port = 0;
  if (read(from_server, &port, sizeof(port)) != sizeof(port)) std::abort();
  {
    std::vector<std::unique_ptr<HttpPeer>> peers;
    for (int i = 0; i < streams; ++i) {
      peers.push_back(std::make_unique<HttpPeer>(port));
      peers.back()->Send("GET /stream HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    for (const auto& peer : peers) peer->ReadThrough("\r\n\r\n");
    Tell(to_server);
    Hear(from_server);
  }
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < connections; ++i) {
    if (HttpGet(port, "/hello").status != 200) std::abort();
  }
  const std::chrono::duration<double> each = std::chrono::steady_clock::now() - start;
  fmt::print("{} new connections, one after the other: {:.0f} per second\n", connections,
             connections / each.count());
  HttpPeer kept(port);
  const auto again = std::chrono::steady_clock::now();
  for (int i = 0; i < connections; ++i) {
    if (kept.Get("/hello").status != 200) std::abort();
  }
  const std::chrono::duration<double> reused = std::chrono::steady_clock::now() - again;
  fmt::print("{} requests on one connection: {:.0f} per second\n", connections,
             connections / reused.count());
  std::fflush(stdout);
  _exit(0);
}

int Run(int streams, int connections) {
  if (!RaiseDescriptorLimit().ok()) return 1;
  int to_client[2], to_server[2];
  if (pipe(to_client) != 0 || pipe(to_server) != 0) return 1;
  const pid_t client = fork();
  if (client == 0) RunClient(to_client[0], to_server[1], streams, connections);
  std::vector<std::shared_ptr<HttpStream>> open;
  auto server = HttpServer::Start(
      {.max_connections = streams + 100},
      {{.method = "GET",
        .path = "/stream",
        .handler = [&open](const auto& exchange) { open.push_back(exchange->StartStream({})); }},
       {.method = "GET", .path = "/hello", .handler = [](const auto& exchange) {
          exchange->Respond({.body = "hello"});
        }}});
  if (!server.ok()) {
    fmt::print(stderr, "{}\n", std::string(server.status().message()));
    return 1;
  }
  const size_t before = Resident();
  const uint16_t port = (*server)->port();
  if (write(to_client[1], &port, sizeof(port)) != sizeof(port)) return 1;
  Hear(to_server[0]);
  const size_t used = Resident() - before;
  fmt::print("{} idle streams: {:.1f} MB, {:.1f} kB each\n", streams,
             static_cast<double>(used) / 1e6, static_cast<double>(used) / 1e3 / streams);
  std::fflush(stdout);
  Tell(to_client[1]);
  int status = 0;
  waitpid(client, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  const int streams = argc > 1 ? std::atoi(argv[1]) : 2000;
  const int connections = argc > 2 ? std::atoi(argv[2]) : 10000;
  return tandem::Run(streams, connections);
}
