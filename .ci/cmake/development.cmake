# SPDX-License-Identifier: Apache-2.0
# Flags of the project's own tests, benchmarks and examples. None of this reaches the interface target.
option(POSENC_NATIVE "Compile posenc's own programs for the CPU of this machine" OFF)
option(POSENC_WERROR "Warnings of posenc's own programs are errors" OFF)
option(POSENC_PCH "Precompile what all of posenc's tests include" ON)
set(POSENC_ARCH "" CACHE STRING "Flags that choose the ISA of posenc's own programs, for example -march=haswell")

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, Debug, RelWithDebInfo or MinSizeRel" FORCE)
endif()

separate_arguments(posenc_arch_flags UNIX_COMMAND "${POSENC_ARCH}")
if(POSENC_NATIVE AND POSENC_ARCH)
  message(FATAL_ERROR "POSENC_NATIVE and POSENC_ARCH both choose an ISA: give one of them.")
elseif(POSENC_NATIVE)
  set(posenc_arch_flags -march=native)
endif()
set(posenc_warning_flags -Wall -Wextra -Wpedantic -Wconversion -Wshadow)
# GCC 12 takes the standard library's "text" + string for a copy of impossible size (GCC bugs 105329, 105651).
set(posenc_false_warnings $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict$<SEMICOLON>-Wno-stringop-overflow$<SEMICOLON>-Wno-error=array-bounds>)

add_library(posenc_development INTERFACE)
target_link_libraries(posenc_development INTERFACE posenc::posenc)
target_compile_options(posenc_development INTERFACE
  ${posenc_warning_flags} ${posenc_false_warnings} $<$<BOOL:${POSENC_WERROR}>:-Werror> ${posenc_arch_flags})

# The flags as a list, for tests that call the compiler by themselves.
separate_arguments(posenc_user_flags UNIX_COMMAND "${CMAKE_CXX_FLAGS}")
get_target_property(posenc_eigen_dirs Eigen3::Eigen INTERFACE_INCLUDE_DIRECTORIES)
list(TRANSFORM posenc_eigen_dirs PREPEND -isystem OUTPUT_VARIABLE posenc_eigen_flags)
set(posenc_probe_flags -std=c++20 ${posenc_user_flags} ${posenc_arch_flags}
  -I${PROJECT_SOURCE_DIR}/include ${posenc_eigen_flags})
