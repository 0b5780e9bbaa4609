# cmake -DPROGRAM=file -P cmake/check_needed.cmake: the program starts on a machine without an NVIDIA
# driver and without CUDA's libraries, since it asks the loader for none of them.
execute_process(COMMAND readelf -d ${PROGRAM} OUTPUT_VARIABLE dynamic COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "\\(NEEDED\\)[^\n]*" needed "${dynamic}")
list(LENGTH needed count)
if(count EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} needs no library at all: the check looks at the wrong thing")
endif()
foreach(line ${needed})
  if(line MATCHES "lib(cuda|cublas|nccl|nv)")
    message(FATAL_ERROR "${PROGRAM} is linked with what it must open at run time: ${line}")
  endif()
endforeach()
message(STATUS "${PROGRAM} needs ${count} libraries, none of CUDA")
