# What `make check` runs (tools/check.py), as far as it needs nothing but Python, and the tests of its scripts.
find_program(TANDEM_PYTHON python3)
if(TANDEM_PYTHON)
  add_test(NAME checks_test COMMAND ${TANDEM_PYTHON} ${CMAKE_SOURCE_DIR}/tests/unit/tools/checks_test.py)
  add_test(NAME simulated_gpus_test COMMAND ${TANDEM_PYTHON} ${CMAKE_SOURCE_DIR}/tools/simulated_gpus.py --check)
endif()
