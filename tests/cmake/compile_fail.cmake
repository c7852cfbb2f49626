# SPDX-License-Identifier: Apache-2.0
cmake_minimum_required(VERSION 3.21)
# cmake -DCOMPILER=<c++> -DFLAGS=<list> -DSOURCE=<file> -P compile_fail.cmake
# The rules are in compile_fail_tests.cmake.
set(ENV{LC_ALL} C)
set(ENV{GCC_COLORS} "")

file(READ ${SOURCE} text)
string(FIND "${text}" "\n" end)
string(SUBSTRING "${text}" 0 ${end} first_line)
if(NOT first_line MATCHES "^// expect: *(.+)$")
  message(FATAL_ERROR "${SOURCE}: the first line must be `// expect: <regular expression>`.")
endif()
set(expected "${CMAKE_MATCH_1}")
if(NOT text MATCHES "\n#ifdef POSENC_SHOULD_FAIL\n.*\n#else\n.*\n#endif")
  message(FATAL_ERROR "${SOURCE}: needs #ifdef POSENC_SHOULD_FAIL ... #else ... #endif.")
endif()

execute_process(COMMAND ${COMPILER} ${FLAGS} -fsyntax-only ${SOURCE}
  RESULT_VARIABLE twin_result OUTPUT_VARIABLE twin_output ERROR_VARIABLE twin_output)
if(NOT twin_result EQUAL 0)
  message(FATAL_ERROR "The passing twin does not compile:\n${twin_output}")
endif()

execute_process(COMMAND ${COMPILER} ${FLAGS} -DPOSENC_SHOULD_FAIL -fsyntax-only ${SOURCE}
  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(result EQUAL 0)
  message(FATAL_ERROR "The mistake compiles. Expected: ${expected}")
endif()

string(REGEX MATCH "[^\n]*error:[^\n]*" first_error "${output}")
if(NOT first_error MATCHES "error:.*(${expected})")
  message(FATAL_ERROR "The first error line does not match.\nexpected: ${expected}\nfound:    ${first_error}\n\n${output}")
endif()
message(STATUS "${first_error}")
