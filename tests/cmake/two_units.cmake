# SPDX-License-Identifier: Apache-2.0
cmake_minimum_required(VERSION 3.21)
# cmake -DCOMPILER= -DFLAGS= -DFLAGS_A= -DFLAGS_B= -DSOURCE_DIR= -DWORK_DIR= -DNM= -P two_units.cmake
# Compiles unit.cpp twice and main.cpp once, links them, runs the program. Where the two units have different flags, their
# object files must not define a common symbol of posenc.
file(MAKE_DIRECTORY ${WORK_DIR})

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nreturned ${result}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

run(${COMPILER} ${FLAGS} ${FLAGS_A} -DPOSENC_UNIT=a -c ${SOURCE_DIR}/unit.cpp -o ${WORK_DIR}/a.o)
run(${COMPILER} ${FLAGS} ${FLAGS_B} -DPOSENC_UNIT=b -DPOSENC_REVERSED -c ${SOURCE_DIR}/unit.cpp -o ${WORK_DIR}/b.o)
run(${COMPILER} ${FLAGS} ${FLAGS_A} -c ${SOURCE_DIR}/main.cpp -o ${WORK_DIR}/main.o)

if(NOT FLAGS_A STREQUAL FLAGS_B)
  foreach(unit a b)
    run(${NM} --defined-only ${WORK_DIR}/${unit}.o)
    string(REGEX MATCHALL "[VWuv] _Z[^\n]*posenc[^\n]*" symbols_${unit} "${output}")
    list(LENGTH symbols_${unit} count)
    if(count EQUAL 0)
      message(FATAL_ERROR "Unit ${unit} defines no symbol of posenc, so that this test would show nothing.")
    endif()
  endforeach()
  foreach(symbol IN LISTS symbols_a)
    if(symbol IN_LIST symbols_b)
      string(APPEND shared "\n  ${symbol}")
    endif()
  endforeach()
  if(shared)
    message(FATAL_ERROR "Both units define:${shared}")
  endif()
endif()

run(${COMPILER} ${FLAGS} ${WORK_DIR}/a.o ${WORK_DIR}/b.o ${WORK_DIR}/main.o -lpthread -o ${WORK_DIR}/program)
run(${WORK_DIR}/program)
message(STATUS "${output}")
