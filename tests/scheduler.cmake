# Tests of scheduler.
tandem_test(scheduler_test
  SOURCES unit/scheduler/scheduler_test.cc unit/scheduler/order_test.cc
          unit/scheduler/eviction_test.cc unit/scheduler/fair_policy_test.cc
          unit/scheduler/preemption_test.cc unit/scheduler/expected_output_test.cc
          unit/scheduler/block_model.cc
  DEPS tandem_scheduler)
tandem_test(latency_model_test
  SOURCES unit/scheduler/step_learner_test.cc unit/scheduler/step_model_test.cc
          unit/scheduler/step_fit_test.cc unit/scheduler/step_costs_test.cc
          unit/scheduler/backlog_test.cc unit/scheduler/codec_model_test.cc
          unit/scheduler/placement_arrivals_test.cc unit/scheduler/placement_handoff_test.cc
          unit/scheduler/placement_model_test.cc
          property/placement_property_test.cc
  DEPS tandem_latency_model)
tandem_test(scheduler_property_test
  SOURCES property/scheduler_property_test.cc property/scheduler_pressure_test.cc
          property/scheduler_admission_test.cc
          unit/scheduler/block_model.cc
  DEPS tandem_scheduler
  LABELS property
  TIMEOUT 600)
tandem_long_test(scheduler_property_long
                 COMMAND scheduler_property_test --gtest_filter=SchedulerProperty.*
                 ENVIRONMENT TANDEM_TRACES=100000)
