# What deploy/ has, as far as this machine can check it. A test that misses a tool says so, and counts as left out.
find_program(TANDEM_PYTHON python3)
if(TANDEM_PYTHON)
  function(tandem_deploy_test name)
    add_test(NAME ${name} COMMAND ${TANDEM_PYTHON} ${CMAKE_SOURCE_DIR}/tests/deploy/${ARGN})
    set_tests_properties(${name} PROPERTIES LABELS deploy TIMEOUT 120 SKIP_RETURN_CODE 77
                         ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
  endfunction()
  tandem_deploy_test(manifests check_manifests.py --tandem $<TARGET_FILE:tandem>)
  tandem_deploy_test(manifest_rules_test manifest_rules_test.py)
  tandem_deploy_test(fetch_model_test fetch_model_test.py)
  tandem_deploy_test(systemd_test systemd_test.py $<TARGET_FILE:tandem>)
  tandem_deploy_test(packaging_test packaging_test.py $<TARGET_FILE:tandem>)
  if(NOT TANDEM_SANITIZE)
    tandem_deploy_test(hardened_binary_test hardened_binary_test.py $<TARGET_FILE:tandem>)
  endif()
  # A minute; needs root.
  tandem_long_test(cluster_test COMMAND ${TANDEM_PYTHON} -B ${CMAKE_SOURCE_DIR}/tests/cluster/cluster_test.py
                                        $<TARGET_FILE:tandem>)
  set_tests_properties(cluster_test PROPERTIES SKIP_RETURN_CODE 77)
endif()
