# Tests of transfer.
