#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "server/commands/child_process.h"
#include "tests/fault/fault_schedule.h"
#include "tests/fault/findings.h"
#include "tests/fault/fleet_member.h"
#include "tests/fault/status_watch.h"
#include "tests/support/frame_proxy.h"

namespace tandem {

// A router and two workers of each role as processes of their own. On tcp, KV
// goes through a proxy before each decode worker.
class Fleet {
 public:
  Fleet(FleetOptions options, FaultFindings& findings);
  ~Fleet();

  // Until all, or those of one role, are up and used by the router; whether they are.
  bool AwaitUp(std::optional<FaultTarget> role = std::nullopt);
  const std::string& router() const { return router_; }
  const StatusWatch& status() const { return *status_; }
  std::vector<FrameProxy*> proxies() const;
  // Those of one role, or all.
  std::vector<FleetMember*> members(std::optional<FaultTarget> role = std::nullopt) const;

  // No request, reservation, hand-off or block in use anywhere and every worker well. What is not
  // so is found.
  bool AwaitRest(Duration patience);
  LossTimes losses() const;

 private:
  void StartRouter();
  void AddMember(FaultTarget role);

  const FleetOptions options_;
  FaultFindings& findings_;
  std::optional<ChildProcess> router_process_;
  std::string router_;
  std::unique_ptr<StatusWatch> status_;
  std::map<std::string, std::unique_ptr<FrameProxy>> proxies_;
  std::vector<std::unique_ptr<FleetMember>> members_;
};

}  // namespace tandem
