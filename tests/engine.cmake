# Tests of engine.
tandem_library(test_engine
  SOURCES support/handoff_pair.cc support/recording_sink.cc support/shallow_model.cc
          support/test_engine.cc support/test_model.cc
  DEPS tandem_engine tandem_test_transports GTest::gtest nlohmann_json::nlohmann_json)
tandem_define_paths(support/shallow_model.cc support/test_model.cc)

tandem_test(same_answer_test SOURCES unit/engine/same_answer_test.cc DEPS tandem_test_engine
            TIMEOUT 900)
tandem_test(constrained_answer_test SOURCES unit/engine/constrained_answer_test.cc
            DEPS tandem_test_engine TIMEOUT 300)
tandem_test(prompt_logprobs_test SOURCES unit/engine/prompt_logprobs_test.cc
            DEPS tandem_test_engine nlohmann_json::nlohmann_json TIMEOUT 300)
tandem_test(forced_output_test SOURCES unit/engine/forced_output_test.cc
            DEPS tandem_test_engine TIMEOUT 300)
tandem_test(simulated_device_test
  SOURCES unit/engine/simulated_device_test.cc unit/engine/simulated_steps_test.cc
  DEPS tandem_simulated tandem_test_engine nlohmann_json::nlohmann_json)
tandem_define_paths(unit/engine/simulated_device_test.cc)
tandem_test(landing_zone_test
  SOURCES unit/engine/encoded_landing_test.cc unit/engine/landing_zone_test.cc
  DEPS tandem_test_engine)
tandem_test(profile_test
  SOURCES unit/engine/cost_parameters_test.cc unit/engine/measure_steps_test.cc
          unit/engine/step_session_test.cc unit/engine/step_timer_test.cc unit/engine/start_measurement_test.cc
          unit/engine/cost_measurement_test.cc
  DEPS tandem_profile tandem_test_engine)
tandem_fuzz_test(cost_parameters_fuzz SOURCES fuzz/cost_parameters_fuzz.cc DEPS tandem_profile
                 CORPUS fuzz/corpus/cost_parameters)
tandem_fuzz_test(simulated_device_fuzz SOURCES fuzz/simulated_device_fuzz.cc DEPS tandem_simulated
                 CORPUS fuzz/corpus/simulated_device)
tandem_fuzz_test(inbound_fuzz SOURCES fuzz/inbound_fuzz.cc DEPS tandem_engine
                 CORPUS fuzz/corpus/inbound)
tandem_test(output_stream_test SOURCES unit/engine/output_stream_test.cc DEPS tandem_test_engine)
tandem_test(pool_size_test SOURCES unit/engine/pool_size_test.cc DEPS tandem_test_engine)
tandem_test(device_loss_test SOURCES unit/engine/device_loss_test.cc DEPS tandem_test_engine)
tandem_test(engine_test SOURCES unit/engine/engine_test.cc unit/engine/store_view_test.cc
            DEPS tandem_test_engine)
tandem_test(prefill_handoff_test SOURCES unit/engine/prefill_handoff_test.cc
            DEPS tandem_test_engine)
tandem_test(decode_handoff_test SOURCES unit/engine/decode_handoff_test.cc DEPS tandem_test_engine)
tandem_test(reservation_test SOURCES unit/engine/reservation_test.cc DEPS tandem_test_engine)
tandem_test(peer_loss_test SOURCES unit/engine/peer_loss_test.cc DEPS tandem_test_engine)
tandem_test(handoff_states_test SOURCES unit/engine/handoff_states_test.cc DEPS tandem_engine)
tandem_test(admission_test SOURCES unit/engine/admission_test.cc DEPS tandem_test_engine)
tandem_test(converted_handoff_test SOURCES unit/engine/converted_handoff_test.cc
            DEPS tandem_test_engine)
tandem_test(encoded_handoff_test
  SOURCES unit/engine/encoded_handoff_test.cc unit/engine/encoded_stream_test.cc
          unit/engine/kv_dumper_test.cc unit/engine/kv_encoder_test.cc
  DEPS tandem_test_engine)
tandem_test(quantised_kv_test SOURCES unit/engine/quantised_kv_test.cc DEPS tandem_test_engine
            TIMEOUT 300)
tandem_test(progress_test SOURCES unit/engine/progress_test.cc DEPS tandem_test_engine)
tandem_test(fork_test SOURCES unit/engine/fork_test.cc DEPS tandem_test_engine)
tandem_test(engine_resume_test SOURCES unit/engine/resume_test.cc DEPS tandem_test_engine TIMEOUT 300)
tandem_test(shared_prefix_test SOURCES unit/engine/shared_prefix_test.cc DEPS tandem_test_engine)
tandem_test(preemption_test
            SOURCES unit/engine/preemption_test.cc unit/engine/swapped_sequence_test.cc
            DEPS tandem_test_engine)
tandem_test(token_eviction_test
            SOURCES unit/engine/token_eviction_test.cc unit/transformer/model_under_test.cc
            DEPS tandem_test_engine TIMEOUT 300)
tandem_define_paths(unit/engine/token_eviction_test.cc)
tandem_test(engine_soak_test SOURCES property/engine_soak_test.cc DEPS tandem_test_engine
            TIMEOUT 300)
tandem_test(beam_search_test SOURCES unit/engine/beam_search_test.cc
            DEPS tandem_beam_search nlohmann_json::nlohmann_json)
tandem_test(beam_request_test SOURCES unit/engine/beam_request_test.cc DEPS tandem_test_engine)
tandem_test(beam_golden_test SOURCES golden/beam_golden_test.cc
            DEPS tandem_test_engine nlohmann_json::nlohmann_json LABELS golden TIMEOUT 600)

# An engine on the device that TANDEM_TEST_DEVICE names: the CPU, a GPU, or the emulated one.
set(ENGINE_DEVICE_TEST unit/engine/bad_row_test.cc unit/engine/device_engine_test.cc
    unit/engine/device_handoff_test.cc)
tandem_test(engine_device_test SOURCES ${ENGINE_DEVICE_TEST}
            DEPS tandem_test_engine tandem_ops_support)
tandem_emulated_test(engine_emulated_test
                     SOURCES ${ENGINE_DEVICE_TEST} unit/engine/emulated_step_test.cc
                     DEPS tandem_test_engine tandem_ops_support TIMEOUT 1200)
set_tests_properties(engine_emulated_test PROPERTIES ENVIRONMENT TANDEM_TEST_DEVICE=cuda:0)
