# Seeded faults on real processes (docs/faults.md).
tandem_test(fault_schedule_test SOURCES fault/fault_schedule_test.cc fault/fault_schedule.cc
            DEPS tandem_proto fmt::fmt)
tandem_test(fault_table_test
            SOURCES fault/fault_table_test.cc fault/fault_table.cc fault/fault_schedule.cc
            DEPS tandem_engine tandem_proto fmt::fmt)
add_executable(fault_harness
  fault/fault_harness.cc fault/event_moments.cc fault/event_runner.cc fault/fault_fleet.cc
  fault/fault_report.cc fault/fault_run.cc fault/fault_schedule.cc fault/fault_targets.cc
  fault/fleet_member.cc fault/fleet_recovery.cc fault/fleet_run.cc fault/frame_desk.cc
  fault/frame_moments.cc fault/generate_call.cc fault/socket_owner.cc fault/status_watch.cc support/frame_faults.cc support/frame_proxy.cc)
target_link_libraries(fault_harness PRIVATE tandem_test_cluster tandem_transfer CLI11::CLI11
                                            nlohmann_json::nlohmann_json)
tandem_precompile(fault_harness DEPS tandem_server)
tandem_compile_together(fault_harness)
add_test(NAME fault_harness COMMAND fault_harness --events 160 --seed 5)
# It waits for losses to be noticed most of the time, so that other tests run beside it.
set_tests_properties(fault_harness PROPERTIES LABELS fault TIMEOUT 600 COST 600)
tandem_long_test(fault_harness_long COMMAND fault_harness --events 10000 --seed 5 --fleets 2)
