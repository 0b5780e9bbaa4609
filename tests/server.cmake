# Tests of server.
