# SPDX-License-Identifier: Apache-2.0
# Each header alone, all headers together under hostile macros, and two translation units in one program.
set(posenc_include_dir ${PROJECT_SOURCE_DIR}/include)
set(posenc_generated_dir ${CMAKE_CURRENT_BINARY_DIR}/generated)
file(GLOB_RECURSE posenc_headers CONFIGURE_DEPENDS RELATIVE ${posenc_include_dir} ${posenc_include_dir}/posenc/*.hpp)
list(SORT posenc_headers)

# Headers of optional dependencies take part where the dependency is there.
set(posenc_header_flags ${posenc_probe_flags} ${posenc_warning_flags} -Werror)
if(TARGET OpenMP::OpenMP_CXX)
  separate_arguments(posenc_openmp_flags UNIX_COMMAND "${OpenMP_CXX_FLAGS}")
else()
  list(FILTER posenc_headers EXCLUDE REGEX "openmp")
endif()
if(EXISTS ${posenc_include_dir}/posenc/distributed)
  find_package(MPI QUIET COMPONENTS CXX)
endif()
if(TARGET MPI::MPI_CXX)
  list(TRANSFORM MPI_CXX_INCLUDE_DIRS PREPEND -isystem OUTPUT_VARIABLE posenc_mpi_flags)
else()
  list(FILTER posenc_headers EXCLUDE REGEX "^posenc/distributed/")
endif()

# ---------------------------------------------------------------------------------------------------- each header alone
foreach(header IN LISTS posenc_headers)
  string(REGEX REPLACE "^posenc/(.*)\\.hpp$" "\\1" name ${header})
  set(source ${posenc_generated_dir}/alone/${name}.cpp)
  # Twice: the include guard works.
  file(CONFIGURE OUTPUT ${source} CONTENT "#include <${header}>\n#include <${header}>\n")
  set(flags ${posenc_header_flags})
  if(header MATCHES "openmp")
    list(APPEND flags ${posenc_openmp_flags})
  elseif(header MATCHES "^posenc/distributed/")
    list(APPEND flags ${posenc_mpi_flags})
  endif()
  add_test(NAME header_alone.${name} COMMAND ${CMAKE_CXX_COMPILER} ${flags} -fsyntax-only ${source})
  set_tests_properties(header_alone.${name} PROPERTIES LABELS headers TIMEOUT 120)
endforeach()

# ----------------------------------------------------------------------------------------- all headers, in both orders
list(TRANSFORM posenc_headers REPLACE "(.+)" "#include <\\1>" OUTPUT_VARIABLE lines)
list(JOIN lines "\n" text)
file(CONFIGURE OUTPUT ${posenc_generated_dir}/all_headers.hpp CONTENT "${text}\n" @ONLY)
list(REVERSE lines)
list(JOIN lines "\n" text)
file(CONFIGURE OUTPUT ${posenc_generated_dir}/all_headers_reversed.hpp CONTENT "${text}\n" @ONLY)

# ------------------------------------------------------------------------------------------------------- hostile macros
# macros/*.cpp hold the macros; each includes all headers behind them, and `control` must fail: it shows that the macros bite.
set(posenc_macro_flags ${posenc_header_flags} ${posenc_openmp_flags} ${posenc_mpi_flags} -pedantic-errors
  -I${posenc_generated_dir} -fsyntax-only)
file(GLOB posenc_macro_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/macros/*.cpp)
foreach(source IN LISTS posenc_macro_sources)
  get_filename_component(name ${source} NAME_WE)
  add_test(NAME macros.${name} COMMAND ${CMAKE_CXX_COMPILER} ${posenc_macro_flags} ${source})
  add_test(NAME macros.${name}.control
    COMMAND ${CMAKE_CXX_COMPILER} ${posenc_macro_flags} -DPOSENC_CONTROL ${source})
  set_tests_properties(macros.${name} macros.${name}.control PROPERTIES LABELS headers TIMEOUT 120)
  set_tests_properties(macros.${name}.control PROPERTIES WILL_FAIL ON)
endforeach()

# ------------------------------------------------------------------------------------------------ two translation units
# `same` links two files that include everything, in both orders. `two_isas` compiles them for different ISAs: symbols of
# posenc must not be shared, or the linker would hand AVX2 code to the file that is compiled for less.
function(posenc_add_two_units name flags_a flags_b)
  add_test(NAME two_units.${name} COMMAND ${CMAKE_COMMAND}
    "-DCOMPILER=${CMAKE_CXX_COMPILER}" "-DFLAGS=${ARGN}" "-DFLAGS_A=${flags_a}" "-DFLAGS_B=${flags_b}"
    "-DSOURCE_DIR=${CMAKE_CURRENT_SOURCE_DIR}/two_units" "-DWORK_DIR=${CMAKE_CURRENT_BINARY_DIR}/two_units/${name}"
    "-DNM=${CMAKE_NM}" -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/two_units.cmake)
  set_tests_properties(two_units.${name} PROPERTIES LABELS headers TIMEOUT 300)
endfunction()

set(flags ${posenc_probe_flags} ${posenc_openmp_flags} ${posenc_mpi_flags} -I${posenc_generated_dir} -O1)
posenc_add_two_units(same "" "" ${flags})
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(flags -std=c++20 ${posenc_user_flags} -I${posenc_include_dir} ${posenc_eigen_flags}
    ${posenc_openmp_flags} ${posenc_mpi_flags} -I${posenc_generated_dir} -O2)
  # Compilers use more than the library asks for: FMA beside AVX.
  posenc_add_two_units(with_fma "-march=x86-64;-mavx" "-march=x86-64;-mavx;-mfma" ${flags})
  posenc_add_two_units(two_isas "-march=x86-64" "-march=x86-64;-mavx2;-mfma;-mf16c" ${flags})
endif()
