// fault_harness --events N --seed S --json FILE: docs/faults.md says what it shows.

#include <fstream>
#include <iostream>

#include "CLI/CLI.hpp"
#include "tests/fault/fault_run.h"
#include "tests/support/tree.h"

int main(int argc, char** argv) {
  tandem::FaultRunOptions options{.binary = tandem::DaemonBinary(), .model = tandem::SampleModel()};
  std::string json;
  CLI::App app("Breaks a cluster in every state of the hand-off, and looks at what comes of it");
  app.add_option("--events", options.events, "requests with one fault each")->capture_default_str();
  app.add_option("--seed", options.seed, "draws everything")->capture_default_str();
  app.add_option("--setups", options.setups, "kinds of clusters side by side")
      ->check(CLI::Range(1, 6))
      ->capture_default_str();
  app.add_option("--fleets", options.fleets,
                 "clusters of each kind side by side, which share its events")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  app.add_option("--at-once", options.at_once, "events at a time, of each cluster")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--tight-share", options.tight_share,
                 "share of the events on tcp with little room at the decode workers")
      ->check(CLI::Range(0.0, 0.3))
      ->capture_default_str();
  app.add_option("--shm-share", options.shm_share, "share of the events with KV through shm")
      ->check(CLI::Range(0.0, 0.35))
      ->capture_default_str();
  app.add_option("--ipc-share", options.ipc_share, "share of the events with KV through ipc")
      ->check(CLI::Range(0.0, 0.35))
      ->capture_default_str();
  app.add_option("--only", options.only, "rows with this in their name, as \"renew frame\"");
  app.add_option("--binary", options.binary, "tandem")->capture_default_str();
  app.add_option("--json", json, "file for the report");
  CLI11_PARSE(app, argc, argv);
  const tandem::FaultReport report = tandem::FaultRun(options).Run();
  std::cout << report.Table();
  if (!json.empty()) std::ofstream(json) << report.Json();
  return report.found.empty() ? 0 : 1;
}
