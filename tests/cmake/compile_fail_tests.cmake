# SPDX-License-Identifier: Apache-2.0
# compile_fail/*.cpp: the first line is `// expect: <regular expression>`, the rest is
#     #ifdef POSENC_SHOULD_FAIL
#     ... the mistake ...
#     #else
#     ... the same, done right ...
#     #endif
# The twin must compile; the mistake must not, and the first line with `error:` must match the expression.
set(posenc_compile_fail_script ${CMAKE_CURRENT_SOURCE_DIR}/cmake/compile_fail.cmake)

file(GLOB_RECURSE posenc_compile_fail_sources CONFIGURE_DEPENDS
  RELATIVE ${CMAKE_CURRENT_SOURCE_DIR}/compile_fail ${CMAKE_CURRENT_SOURCE_DIR}/compile_fail/*.cpp)
foreach(source IN LISTS posenc_compile_fail_sources)
  string(REGEX REPLACE "\\.cpp$" "" name ${source})
  add_test(NAME compile_fail.${name} COMMAND ${CMAKE_COMMAND}
    "-DCOMPILER=${CMAKE_CXX_COMPILER}" "-DFLAGS=${posenc_probe_flags}"
    "-DSOURCE=${CMAKE_CURRENT_SOURCE_DIR}/compile_fail/${source}" -P ${posenc_compile_fail_script})
  set_tests_properties(compile_fail.${name} PROPERTIES LABELS compile_fail TIMEOUT 120)
endforeach()

# The checker itself: it accepts a right file and reports each way to be wrong.
add_test(NAME compile_fail.self_check COMMAND ${CMAKE_COMMAND}
  "-DCOMPILER=${CMAKE_CXX_COMPILER}" "-DFLAGS=${posenc_probe_flags}" "-DSCRIPT=${posenc_compile_fail_script}"
  "-DWORK_DIR=${CMAKE_CURRENT_BINARY_DIR}/compile_fail_self_check"
  -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/compile_fail_self_check.cmake)
set_tests_properties(compile_fail.self_check PROPERTIES LABELS compile_fail TIMEOUT 120)
