# Tests of router.
tandem_test(router_test
  SOURCES unit/router/choices_test.cc unit/router/cluster_test.cc unit/router/event_loop_test.cc
          unit/router/pings_test.cc unit/router/request_validation_test.cc unit/router/resume_leaving_test.cc
          unit/router/resume_losses_test.cc unit/router/resume_numerics_test.cc
          unit/router/resume_stats_test.cc unit/router/router_test.cc
          unit/router/routing_policy_test.cc unit/router/stages_test.cc
          unit/router/told_output_test.cc unit/router/unreached_test.cc
  DEPS tandem_router)
