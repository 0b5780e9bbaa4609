#pragma once

#include <string>

#include "bench/simulator/simulation.h"
#include "nlohmann/json_fwd.hpp"

namespace tandem::simulator {

// Says above every report that nothing in it was measured.
std::string Heading(const std::string& fleet, const std::string& policy);

// What the workers did: by role, and each of them where there are few.
std::string FleetText(const SimulationResult& result);

// Adds "simulated": true, "routes", "workers", "router" and "event_digest".
void AddFleet(const SimulationResult& result, nlohmann::ordered_json& json);

}  // namespace tandem::simulator
