# Tests of engine.
tandem_library(test_engine
  SOURCES support/handoff_pair.cc support/recording_sink.cc support/shallow_model.cc
          support/test_engine.cc support/test_model.cc
  DEPS tandem_engine tandem_test_transports tandem_test_tree GTest::gtest nlohmann_json::nlohmann_json)
tandem_test_program(engine_unit_tests
  DEPS tandem_test_engine tandem_beam_search tandem_profile tandem_simulated tandem_tokenizer
       nlohmann_json::nlohmann_json
  SUPPORT unit/transformer/model_under_test.cc)

# What a test has beside the file of its name.
set(beam_search_more unit/engine/beam_steps_test.cc)
set(prefill_handoff_more unit/engine/lost_stream_test.cc unit/engine/prefill_endings_test.cc)
foreach(name admission beam_request beam_search converted_handoff decode_handoff device_loss fork
             handoff_states output_stream peer_loss pool_size prefill_handoff progress reservation
             shared_prefix)
  tandem_test(${name}_test SOURCES unit/engine/${name}_test.cc ${${name}_more} IN engine_unit_tests)
endforeach()
foreach(name constrained_answer forced_output prompt_logprobs quantised_kv)
  tandem_test(${name}_test SOURCES unit/engine/${name}_test.cc IN engine_unit_tests TIMEOUT 300)
endforeach()
tandem_test(same_answer_test SOURCES unit/engine/same_answer_test.cc IN engine_unit_tests TIMEOUT 900)
tandem_test_on(same_answer_bf16_test cpu-bf16 TIMEOUT 900
               COMMAND engine_unit_tests --files=unit/engine/same_answer_test.cc)
tandem_test(simulated_device_test
  SOURCES unit/engine/simulated_device_test.cc unit/engine/simulated_steps_test.cc
  IN engine_unit_tests)
tandem_test(landing_zone_test
  SOURCES unit/engine/converting_zone_test.cc unit/engine/encoded_landing_test.cc
          unit/engine/landing_zone_test.cc
  IN engine_unit_tests)
tandem_test(profile_test
  SOURCES unit/engine/cost_parameters_test.cc unit/engine/kv_sensitivity_file_test.cc
          unit/engine/measure_kv_sensitivity_test.cc unit/engine/measure_steps_test.cc
          unit/engine/step_session_test.cc unit/engine/step_timer_test.cc unit/engine/start_measurement_test.cc
          unit/engine/cost_measurement_test.cc
  IN engine_unit_tests)
tandem_fuzz_test(cost_parameters_fuzz SOURCES fuzz/cost_parameters_fuzz.cc DEPS tandem_profile
                 CORPUS fuzz/corpus/cost_parameters)
tandem_fuzz_test(kv_sensitivity_fuzz SOURCES fuzz/kv_sensitivity_fuzz.cc DEPS tandem_profile
                 CORPUS fuzz/corpus/kv_sensitivity)
tandem_fuzz_test(simulated_device_fuzz SOURCES fuzz/simulated_device_fuzz.cc DEPS tandem_simulated
                 CORPUS fuzz/corpus/simulated_device)
tandem_fuzz_test(inbound_fuzz SOURCES fuzz/inbound_fuzz.cc DEPS tandem_engine
                 CORPUS fuzz/corpus/inbound)
tandem_test(engine_test
            SOURCES unit/engine/engine_refusals_test.cc unit/engine/engine_test.cc
                    unit/engine/store_view_test.cc
            IN engine_unit_tests)
tandem_test(encoded_handoff_test
  SOURCES unit/engine/codec_drift_test.cc unit/engine/encoded_handoff_test.cc
          unit/engine/encoded_stream_test.cc unit/engine/kv_dumper_test.cc unit/engine/kv_encoder_test.cc
          unit/engine/rounded_layers_test.cc
  IN engine_unit_tests)
tandem_test(engine_resume_test
            SOURCES unit/engine/resume_endings_test.cc unit/engine/resume_test.cc
            IN engine_unit_tests TIMEOUT 300)
tandem_test(preemption_test
            SOURCES unit/engine/preemption_test.cc unit/engine/swapped_sequence_test.cc
            IN engine_unit_tests)
tandem_test(token_eviction_test
            SOURCES unit/engine/token_eviction_decode_test.cc
                    unit/engine/token_eviction_pool_test.cc unit/engine/token_eviction_test.cc
            IN engine_unit_tests TIMEOUT 300)
tandem_test(engine_soak_test SOURCES property/engine_soak_test.cc IN engine_unit_tests TIMEOUT 300)
tandem_test(beam_golden_test SOURCES golden/beam_golden_test.cc
            IN engine_unit_tests LABELS golden TIMEOUT 600)

# An engine on the device that TANDEM_TEST_DEVICE names: the CPU, a GPU, or the emulated one.
set(ENGINE_DEVICE_TEST unit/engine/bad_row_test.cc unit/engine/device_engine_test.cc
    unit/engine/device_handoff_test.cc)
tandem_test(engine_device_test SOURCES ${ENGINE_DEVICE_TEST}
            DEPS tandem_test_engine tandem_ops_support)
tandem_emulated_test(engine_emulated_test
                     SOURCES ${ENGINE_DEVICE_TEST} unit/engine/emulated_step_test.cc
                     DEPS tandem_test_engine tandem_ops_support TIMEOUT 1200)
set_tests_properties(engine_emulated_test PROPERTIES ENVIRONMENT TANDEM_TEST_DEVICE=cuda:0)
