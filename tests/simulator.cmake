# Tests of bench/simulator.
tandem_test(simulator_test
  SOURCES unit/simulator/capacity_test.cc unit/simulator/crossover_test.cc unit/simulator/fleet_test.cc
          unit/simulator/kv_counts_test.cc unit/simulator/kv_link_test.cc
          unit/simulator/scenarios_test.cc unit/simulator/simulated_point_test.cc unit/simulator/slo_map_test.cc
          unit/simulator/simulation_test.cc
  DEPS tandem_simulator nlohmann_json::nlohmann_json)
