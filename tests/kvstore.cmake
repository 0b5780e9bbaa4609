# Tests of kvstore.
