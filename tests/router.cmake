# Tests of router.
tandem_test(router_test
  SOURCES unit/router/admission_control_test.cc unit/router/agreement_test.cc unit/router/auto_policy_test.cc
          unit/router/auto_policy_stability_test.cc unit/router/beam_choices_test.cc
          unit/router/beam_validation_test.cc unit/router/best_of_test.cc unit/router/classic_model_test.cc unit/router/classic_policy_test.cc
          unit/router/choice_text_test.cc unit/router/choices_test.cc
          unit/router/cluster_test.cc unit/router/cluster_view_test.cc
          unit/router/decision_log_test.cc unit/router/event_loop_test.cc
          unit/router/explained_requests_test.cc unit/router/failover_test.cc unit/router/forced_validation_test.cc
          unit/router/grpc_worker_client_test.cc unit/router/link_costs_test.cc unit/router/pings_test.cc
          unit/router/objective_test.cc unit/router/output_length_predictor_test.cc unit/router/length_forecasts_test.cc
          unit/router/placement_test.cc unit/router/prediction_book_test.cc
          unit/router/prediction_comparison_test.cc unit/router/prefix_affinity_test.cc
          unit/router/prefix_index_test.cc unit/router/prefix_routing_test.cc
          unit/router/queue_move_test.cc unit/router/registration_check_test.cc
          unit/router/request_ledger_test.cc unit/router/request_metrics_test.cc
          unit/router/kv_fields_test.cc unit/router/request_options_test.cc
          unit/router/request_spans_test.cc unit/router/request_validation_test.cc
          unit/router/resolved_request_test.cc unit/router/resume_choices_test.cc
          unit/router/resume_leases_test.cc unit/router/resume_leaving_test.cc
          unit/router/resume_losses_test.cc unit/router/resume_numerics_test.cc
          unit/router/resume_stats_test.cc unit/router/resume_waits_test.cc
          unit/router/router_candidates_test.cc unit/router/router_endings_test.cc
          unit/router/router_room_test.cc unit/router/router_test.cc unit/router/router_texts_test.cc
          unit/router/routing_policy_test.cc unit/router/stages_test.cc
          unit/router/streamed_output_test.cc unit/router/tokenize_pool_test.cc
          unit/router/unreached_test.cc unit/router/worker_names_test.cc
          unit/router/worker_queues_test.cc
  DEPS tandem_router)
