# What makes a mistake in handling memory harder to exploit, in every target: addresses that differ from run to
# run, tables of functions that cannot be written, guards of return addresses, and checked copies of the C
# library. tests/deploy/hardened_binary_test.py looks for each in the program. The sanitizers find more and have
# guards of their own.
if(TANDEM_SANITIZE)
  return()
endif()
include(CheckCXXCompilerFlag)

# Ubuntu's compilers define a level of their own.
set(hardening -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -fstack-protector-strong)
foreach(flag -fstack-clash-protection -fcf-protection)  # which not every processor has
  string(MAKE_C_IDENTIFIER "TANDEM_HAS${flag}" known)
  check_cxx_compiler_flag(${flag} ${known})
  if(${known})
    list(APPEND hardening ${flag})
  endif()
endforeach()
add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:${hardening}>")
add_link_options(-Wl,-z,relro,-z,now -Wl,-z,noexecstack "$<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-pie>")
