# Tests of scheduler.
