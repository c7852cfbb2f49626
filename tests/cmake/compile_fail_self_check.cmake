# SPDX-License-Identifier: Apache-2.0
cmake_minimum_required(VERSION 3.21)
# Runs compile_fail.cmake on files that are right and wrong in known ways.
file(REMOVE_RECURSE ${WORK_DIR})

# Expects `verdict` (accepts, or words of the complaint) for a file with this text.
function(expect verdict name text)
  file(WRITE ${WORK_DIR}/${name}.cpp "${text}")
  execute_process(COMMAND ${CMAKE_COMMAND} "-DCOMPILER=${COMPILER}" "-DFLAGS=${FLAGS}"
    "-DSOURCE=${WORK_DIR}/${name}.cpp" -P ${SCRIPT}
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  if(verdict STREQUAL "accepts")
    if(NOT result EQUAL 0)
      message(SEND_ERROR "${name}: should have been accepted:\n${output}")
    endif()
  elseif(result EQUAL 0)
    message(SEND_ERROR "${name}: was accepted, should have been: ${verdict}")
  elseif(NOT output MATCHES "${verdict}")
    message(SEND_ERROR "${name}: expected the complaint `${verdict}`:\n${output}")
  endif()
endfunction()

set(head "#include <posenc/version.hpp>\n#ifdef POSENC_SHOULD_FAIL\n")
set(tail "\n#else\nint right = 1;\n#endif\n")
set(mistake "static_assert(sizeof(int) == 0, \"say this\");")

expect("accepts" good "// expect: say this\n${head}${mistake}${tail}")
expect("accepts" alternatives "// expect: nothing|say th[a-z]s\n${head}${mistake}${tail}")
expect("The mistake compiles" skeleton "// expect: say this\n${head}int wrong = 2;${tail}")
expect("does not match" other_sentence "// expect: another sentence\n${head}${mistake}${tail}")
expect("does not match" second_error
  "// expect: say this\n${head}static_assert(sizeof(int) == 0, \"first\");\n${mistake}${tail}")
expect("twin does not compile" broken_twin "// expect: say this\n${head}${mistake}\n#else\nint = ;\n#endif\n")
expect("first line must be" no_expectation "${head}${mistake}${tail}")
expect("needs #ifdef" no_twin "// expect: say this\n#include <posenc/version.hpp>\n${mistake}\n")
