# Tests of server, and of whole processes.
tandem_test_program(server_unit_tests
  DEPS tandem_test_transports tandem_test_engine tandem_check tandem_eval tandem_page
       tandem_reports tandem_terminal tandem_server
  SUPPORT support/fake_collector.cc support/http_peer.cc support/payload_memory.cc support/test_certificates.cc
          support/transport_probe.cc)
tandem_test(server_test
  SOURCES unit/server/access_control_test.cc unit/server/cache_reports_test.cc unit/server/canary_test.cc unit/server/classic_parameters_test.cc
          unit/server/explain_report_test.cc unit/server/exposition_test.cc unit/server/field_metrics_test.cc
          unit/server/generation_test.cc unit/server/heap_trimmer_test.cc unit/server/host_memory_test.cc unit/server/kv_report_test.cc unit/server/kv_sensitivity_test.cc
          unit/server/load_messages_test.cc unit/server/loaded_model_test.cc unit/server/message_limit_test.cc
          unit/server/metrics_page_test.cc unit/server/metrics_test.cc
          unit/server/open_connections_test.cc unit/server/open_fabric_test.cc
          unit/server/parse_message_test.cc unit/server/registration_dns_test.cc
          unit/server/registration_test.cc unit/server/reservation_messages_test.cc
          unit/server/router_directory_test.cc unit/server/router_health_test.cc
          unit/server/status_mapping_test.cc unit/server/status_page_test.cc unit/server/status_report_test.cc
          unit/server/telemetry_test.cc unit/server/transfer_report_test.cc
          unit/server/watchdog_test.cc unit/server/worker_messages_test.cc
          unit/server/worker_pages_test.cc unit/server/worker_service_test.cc unit/server/write_queue_test.cc
  IN server_unit_tests)

tandem_test(config_test
  SOURCES unit/config/config_file_test.cc unit/config/config_text_test.cc
          unit/config/nearest_name_test.cc
  IN server_unit_tests)

tandem_test(check_test
  SOURCES unit/check/advice_test.cc unit/check/check_deployment_test.cc
          unit/check/check_ports_test.cc unit/check/check_tls_test.cc
  IN server_unit_tests)

tandem_test(grpc_tls_test
  SOURCES unit/security/cluster_tls_test.cc unit/security/grpc_tls_test.cc IN server_unit_tests)

tandem_test(eval_test
  SOURCES unit/eval/eval_report_test.cc unit/eval/eval_texts_test.cc unit/eval/eval_windows_test.cc
          unit/eval/planted_text_test.cc unit/eval/prediction_change_test.cc
  IN server_unit_tests)

tandem_test(terminal_test
  SOURCES unit/terminal/chat_answer_test.cc unit/terminal/chat_file_test.cc
          unit/terminal/chat_session_test.cc unit/terminal/chat_totals_test.cc
          unit/terminal/conversation_test.cc unit/terminal/terminal_text_test.cc
          unit/terminal/user_input_test.cc
  IN server_unit_tests)

tandem_test(http_test
  SOURCES unit/server/http_answers_test.cc unit/server/http_connections_test.cc
          unit/server/http_server_test.cc unit/server/http_tls_test.cc
          unit/server/request_reader_test.cc
  IN server_unit_tests)
tandem_test(page_test SOURCES unit/server/page_test.cc IN server_unit_tests)
tandem_fuzz_test(http_request_fuzz SOURCES fuzz/http_request_fuzz.cc DEPS tandem_http
  CORPUS fuzz/corpus/http_request)
tandem_fuzz_test(access_file_fuzz SOURCES fuzz/access_file_fuzz.cc DEPS tandem_server
  CORPUS fuzz/corpus/access_file)
tandem_fuzz_test(http_headers_fuzz SOURCES fuzz/http_headers_fuzz.cc DEPS tandem_server
  CORPUS fuzz/corpus/http_headers)
tandem_fuzz_test(router_name_fuzz SOURCES fuzz/router_name_fuzz.cc DEPS tandem_server
  CORPUS fuzz/corpus/router_name)
tandem_fuzz_test(conversation_fuzz SOURCES fuzz/conversation_fuzz.cc DEPS tandem_terminal
  CORPUS fuzz/corpus/conversation)
tandem_watch_stack(http_test page_test)

tandem_test(loadgen_backend_test SOURCES unit/loadgen/grpc_backend_test.cc
            unit/loadgen/openai_backend_test.cc DEPS tandem_http tandem_loadgen_backends tandem_proto)

tandem_test(trace_transports_test
  SOURCES unit/server/trace_transports_test.cc IN server_unit_tests)

tandem_fuzz_test(request_fuzz SOURCES fuzz/request_fuzz.cc DEPS tandem_server
  CORPUS fuzz/corpus/request)
tandem_fuzz_test(worker_messages_fuzz SOURCES fuzz/worker_messages_fuzz.cc DEPS tandem_server
  CORPUS fuzz/corpus/worker_messages)

tandem_library(test_cluster SOURCES support/test_cluster.cc support/call_by_bytes.cc support/shell.cc
                                    support/frozen_thread.cc support/wrapped_binary.cc
               DEPS tandem_server tandem_test_tree GTest::gtest)
add_dependencies(tandem_test_cluster tandem)

tandem_test_program(integration_tests
  DEPS tandem_test_cluster tandem_transfer
  SUPPORT support/abused_fleet.cc support/fake_collector.cc support/hostile_peer.cc support/http_peer.cc
          support/raw_connections.cc support/silent_proxy.cc support/test_certificates.cc)
# What a test has beside the file of its name.
set(abuse_more integration/abuse_requests_test.cc)
set(command_line_more integration/command_line_processes_test.cc
    integration/command_line_refusals_test.cc)
set(hostile_http_more integration/hostile_json_test.cc)
set(openai_integration_more integration/openai_equals_grpc_test.cc)
foreach(name abuse access bench_serve bench_sweep cached_prompts calibrate_kv_command chat_command command_line config_file_integration
             connections endings eval_command fleet_tls hostile_http hostile_peers http_overload inspect_kv
             kv_tls large_prompts log openai_integration overload prefix_routing profile_command
             request_options resume routes several_choices several_routers silent_connection simulated
             standard_services tool_calls trace_tree transports turns_integration watchdog weights_hash
             worker_loss)
  tandem_test(${name}_test SOURCES integration/${name}_test.cc ${${name}_more} IN integration_tests
              LABELS integration TIMEOUT 300)
endforeach()

# curl, and the HTTP client of Python's standard library.
find_program(TANDEM_PYTHON python3)
if(TANDEM_PYTHON)
  add_test(NAME plain_client
           COMMAND ${TANDEM_PYTHON} ${CMAKE_SOURCE_DIR}/tests/clients/plain_client.py)
  set_tests_properties(plain_client PROPERTIES LABELS "integration;server" TIMEOUT 300
    ENVIRONMENT "TANDEM=$<TARGET_FILE:tandem>;MODEL=${TANDEM_TEST_ROOT}/models/sample;PYTHONDONTWRITEBYTECODE=1")
endif()

# docs/flags.md says what --help says, which later versions of CLI11 than Debian 12's lay out otherwise.
if(TANDEM_PYTHON AND TANDEM_TOOLS AND CLI11_VERSION VERSION_LESS 2.2)
  add_test(NAME flags_page COMMAND ${TANDEM_PYTHON} ${CMAKE_SOURCE_DIR}/tools/packaging/make_flags_page.py
                                   --tandem $<TARGET_FILE:tandem> --check)
  set_tests_properties(flags_page PROPERTIES LABELS server ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1")
endif()

# All features at once for a while, on real processes (docs/testing.md). A minute here; make test-long: half an hour.
if(TANDEM_PYTHON)
  set(soak ${TANDEM_PYTHON} -B ${CMAKE_SOURCE_DIR}/tests/soak/soak_test.py $<TARGET_FILE:tandem>
           ${TANDEM_TEST_ROOT}/models/sample)
  if(TANDEM_SANITIZE)
    list(APPEND soak --no-memory)
  endif()
  add_test(NAME soak COMMAND ${soak})
  set_tests_properties(soak PROPERTIES LABELS "integration;server" TIMEOUT 300 COST 300)
  tandem_long_test(soak_long COMMAND ${soak} --seconds 1800)
endif()

# A real Prometheus, and what it makes of deploy/.
find_program(TANDEM_PROMTOOL promtool)
find_program(TANDEM_PROMETHEUS prometheus)
if(TANDEM_PYTHON AND TANDEM_PROMTOOL AND TANDEM_PROMETHEUS)
  set(environment "PROMTOOL=${TANDEM_PROMTOOL};PROMETHEUS=${TANDEM_PROMETHEUS};TANDEM=$<TARGET_FILE:tandem>;MODEL=${TANDEM_TEST_ROOT}/models/sample;PYTHONDONTWRITEBYTECODE=1")
  foreach(name rules_check scrape_check)
    add_test(NAME prometheus_${name}
             COMMAND ${TANDEM_PYTHON} ${CMAKE_SOURCE_DIR}/tests/prometheus/${name}.py)
    set_tests_properties(prometheus_${name} PROPERTIES LABELS "integration;server" TIMEOUT 300
                         ENVIRONMENT "${environment}")
  endforeach()
  # Four minutes, in which most of the time is spent waiting for alerts.
  tandem_long_test(prometheus_alerts_check COMMAND ${TANDEM_PYTHON} ${CMAKE_SOURCE_DIR}/tests/prometheus/alerts_check.py
                   ENVIRONMENT "${environment}")
else()
  message(STATUS "Prometheus: OFF, its tests are left out; tools/install_deps.sh prometheus installs it")
endif()

tandem_long_test(hostile_http_long
                 COMMAND integration_tests --gtest_filter=HostileHttpTest.*HalfOpenConnections*
                 ENVIRONMENT TANDEM_HALF_OPEN=10000)
tandem_long_test(abuse_long COMMAND integration_tests --gtest_filter=*AbuseTest.*HalfOpen*
                 ENVIRONMENT TANDEM_HALF_OPEN=10000)

tandem_emulated_test(device_memory_test SOURCES unit/server/device_memory_test.cc
                     DEPS tandem_transfer_nccl_emulated tandem_server TIMEOUT 300)

# The daemon on the emulated GPU.
add_executable(tandem_emulated)
target_link_libraries(tandem_emulated PRIVATE tandem_kernels_cuda_emulated tandem_transfer_nccl_emulated
                                              tandem_simt tandem_program)
add_dependencies(tandem_emulated tandem_fake_cublaslt tandem_fake_nccl)
tandem_test(emulated_daemon_test SOURCES integration/emulated_daemon_test.cc
            DEPS tandem_test_cluster LABELS integration TIMEOUT 600)
add_dependencies(emulated_daemon_test tandem_emulated)

# What `make demo` builds: tools are refused with what to do, whatever follows them.
set(program tandem)
if(TANDEM_TOOLS)
  set(program tandem_without_tools)
  add_executable(${program} $<TARGET_OBJECTS:tandem_no_tools>)
  target_link_libraries(${program} PRIVATE tandem_program_without_tools)
endif()
foreach(command bench calibrate-kv check eval inspect profile simulate)
  add_test(NAME absent_${command}_test
    COMMAND sh -c "said=$($<TARGET_FILE:${program}> ${command} --some flag 2>&1); [ $? = 1 ] && echo \"$said\" | grep -q 'UNIMPLEMENTED: .*make build.*tandem ${command}'")
  set_tests_properties(absent_${command}_test PROPERTIES LABELS server)
endforeach()
