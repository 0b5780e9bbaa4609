# Tests of scheduler.
tandem_test(scheduler_test SOURCES unit/scheduler/scheduler_test.cc DEPS tandem_scheduler)
tandem_test(scheduler_property_test
  SOURCES property/scheduler_property_test.cc
  DEPS tandem_scheduler
  LABELS property)
