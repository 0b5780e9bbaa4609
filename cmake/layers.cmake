# Which room may include which (docs/architecture.md), as data. A room may always include itself.
# LAYERS lists the rooms, longest path first, so that a file belongs to the first that matches.
set(LAYERS model/tokenizer model/chat model/answer model/checkpoint model/transformer router/cluster router/ledger
    router/admission router/prefix router/policy router/explain router/output_length router/client router/attempt
    router/request server/openai server/anthropic kvstore/codec security/grpc security tracing base kernels kvstore transfer
    scheduler/latency_model scheduler engine router server proto bench/serving bench/simulator)

set(MAY_INCLUDE_base "")
set(MAY_INCLUDE_security base)
set(MAY_INCLUDE_tracing base)
set(MAY_INCLUDE_security/grpc base security)
set(MAY_INCLUDE_kernels base)
set(MAY_INCLUDE_model/tokenizer base)
set(MAY_INCLUDE_model/chat base model/tokenizer/text_part.h)
set(MAY_INCLUDE_model/answer base model/chat)
set(MAY_INCLUDE_model/checkpoint base)
set(MAY_INCLUDE_model/transformer base kernels model/checkpoint)
set(MAY_INCLUDE_kvstore/codec base)
set(MAY_INCLUDE_kvstore base kernels kvstore/codec)
set(MAY_INCLUDE_transfer base security kernels/device.h)
set(MAY_INCLUDE_scheduler/latency_model base)
set(MAY_INCLUDE_scheduler base scheduler/latency_model)
set(MAY_INCLUDE_engine base kernels model/tokenizer model/checkpoint model/transformer kvstore
    transfer scheduler proto)
set(MAY_INCLUDE_router/cluster base proto scheduler/latency_model)
set(MAY_INCLUDE_router/ledger base proto router/cluster scheduler/latency_model)
set(MAY_INCLUDE_router/prefix base proto router/cluster)
set(MAY_INCLUDE_router/policy base proto router/cluster router/ledger router/prefix
    scheduler/latency_model)
set(MAY_INCLUDE_router/explain base proto router/policy router/cluster
    scheduler/latency_model router/request/request_spec.h)
set(MAY_INCLUDE_router/admission base proto router/policy/slo.h)
set(MAY_INCLUDE_router/client base proto router/cluster router/event_loop.h security security/grpc
    tracing)
set(MAY_INCLUDE_router/output_length base proto)
set(MAY_INCLUDE_router/attempt base proto router/cluster router/ledger router/prefix router/policy
    router/admission router/client router/explain router/output_length router/event_loop.h
    router/request/request_spec.h tracing)
set(MAY_INCLUDE_router/request base proto model/tokenizer router/cluster router/prefix
    router/admission router/attempt router/explain router/output_length router/policy/slo.h tracing)
set(MAY_INCLUDE_router base proto router model/tokenizer tracing)
set(MAY_INCLUDE_server/openai base proto router model/tokenizer model/chat model/answer server/http
    tracing)
set(MAY_INCLUDE_server/anthropic base server/http server/openai)
set(MAY_INCLUDE_server server/openai server/anthropic engine router proto base model/tokenizer
    model/chat model/answer model/checkpoint model/transformer kernels kvstore transfer scheduler
    bench/serving bench/simulator security security/grpc tracing)
set(MAY_INCLUDE_proto "")
set(MAY_INCLUDE_bench/serving base proto security security/grpc)
set(MAY_INCLUDE_bench/simulator base proto kvstore scheduler engine router server/services
    bench/serving)

# Foreign headers that only some rooms may include: regex of the header -> regex of the file.
set(FOREIGN
    "^(grpcpp|grpc)/" "^(server|router/client|bench/serving|security/grpc)/|^engine/worker_client"
    "^curl/" "^bench/serving/"
    "^histedit" "^server/terminal/editline_reader.cc$"
    "^(cuda|cublas|nccl)" "^(kernels/cuda|transfer/media/nccl)/"
    "^zstd" "^kvstore/codec/"
    "^hwy/" "^(base/simd|kernels/cpu|kvstore/codec)/"
    "^openssl/" "^(transfer/media/tcp|security|server/http|server/access)/"
    "^boost/" "^server/http/(.*\\.cc|polled_stream\\.h)$"
    "^unicode/" "^model/(tokenizer|chat)/"
    "^pcre2" "^model/tokenizer/")

# Calls that only base/tsan_mutex.cc may name: regex of the call -> what to use in its place.
set(FORBIDDEN_CALLS
    "(Await|Wait|LockWhen|WaitForNotification)With(Timeout|Deadline)"
    "waits by the clock of the day, which may be set back: use base/condition_variable.h")
