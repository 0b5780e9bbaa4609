# Sourced by run.sh: what compute-sanitizer runs over, small cases of the conformance tests, since
# every launch takes tens of times longer there. A line: tool, limit in seconds, program, tests. The
# limits of a stage together leave a call of ten minutes room to unpack and start.
# Attention is cut so that each run meets few kernels; together they are all that are compiled: every
# group, head dim, block size, edge, window, cap and type of KV, and on 9.0 the portable prefill too.
EXTENTS='*OneSideMayBeginAnywhere/cuda_0:*AroundWhatIsMovedInOneGo/cuda_0'
GROUPS_AND_DIMS='*EveryGroupSize/cuda_0:*EveryHeadDimOverEveryBlockSize/cuda_0:*WithoutContext*/cuda_0'
EDGES='*EveryBlockSizeAndEdge/cuda_0'
WINDOWS='*WithWindows/cuda_0'
PORTABLE='*WithPortableKernels/cuda_0'
CAPS_AND_F8='*WithSoftcap/cuda_0:*OverScaledF8/cuda_0'
MASS='*BlockSize/cuda_0'

MEMCHECK=(
  "memcheck 30 device_extents_test $EXTENTS"
  "memcheck 40 ops_test */cuda_0*"
  "memcheck 30 ops_kv_test */cuda_0*"
  "memcheck 30 ops_rows_test */cuda_0*"
  "memcheck 40 ops_sample_test */cuda_0*"
  "memcheck 30 ops_attention_mass_test $MASS"
  "memcheck 50 ops_attention_test $GROUPS_AND_DIMS"
  "memcheck 60 ops_attention_test $EDGES"
  "memcheck 60 ops_attention_test $WINDOWS"
  "memcheck 50 ops_attention_test $PORTABLE"
  "memcheck 60 ops_attention_test $CAPS_AND_F8"
  "initcheck 30 ops_attention_test *EveryGroupSize/cuda_0"
)
RACECHECK=(
  "racecheck 30 device_extents_test $EXTENTS"
  "racecheck 30 ops_test */cuda_0*"
  "racecheck 30 ops_sample_test */cuda_0*"
  "racecheck 30 ops_attention_mass_test $MASS"
  "racecheck 60 ops_attention_test $GROUPS_AND_DIMS"
  "racecheck 70 ops_attention_test $EDGES"
  "racecheck 70 ops_attention_test $WINDOWS"
  "racecheck 60 ops_attention_test $PORTABLE"
  "racecheck 70 ops_attention_test $CAPS_AND_F8"
  "synccheck 50 ops_attention_test $GROUPS_AND_DIMS"
)
