# Tests of checkpoint.
