# Tests of router.
