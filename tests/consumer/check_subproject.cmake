# SPDX-License-Identifier: Apache-2.0
# Include `before` part, bring posenc in, then call posenc_check_subproject(<its binary folder's source folder>):
# nothing of the project that uses posenc may have changed.
set(BUILD_TESTING ON)
enable_testing()
set(watched CMAKE_BUILD_TYPE CMAKE_CXX_FLAGS CMAKE_CXX_FLAGS_RELEASE CMAKE_CXX_STANDARD CMAKE_CXX_EXTENSIONS
  CMAKE_MODULE_PATH CMAKE_POSITION_INDEPENDENT_CODE CMAKE_RUNTIME_OUTPUT_DIRECTORY CMAKE_EXPORT_COMPILE_COMMANDS
  CMAKE_INTERPROCEDURAL_OPTIMIZATION BUILD_TESTING BUILD_SHARED_LIBS)
foreach(variable IN LISTS watched)
  set(before_${variable} "${${variable}}")
endforeach()
get_directory_property(before_options COMPILE_OPTIONS)
get_directory_property(before_definitions COMPILE_DEFINITIONS)
get_cmake_property(before_cache CACHE_VARIABLES)

function(posenc_check_subproject source_dir)
  foreach(variable IN LISTS watched)
    if(NOT "${before_${variable}}" STREQUAL "${${variable}}")
      message(SEND_ERROR "${variable} was \"${before_${variable}}\" and is \"${${variable}}\"")
    endif()
  endforeach()
  get_directory_property(options COMPILE_OPTIONS)
  get_directory_property(definitions COMPILE_DEFINITIONS)
  if(NOT "${options}" STREQUAL "${before_options}" OR NOT "${definitions}" STREQUAL "${before_definitions}")
    message(SEND_ERROR "Options or definitions of this folder changed: ${options} ${definitions}")
  endif()

  # Apart from what CMake itself notes for a project and a found package, only POSENC_... may be new.
  get_cmake_property(cache CACHE_VARIABLES)
  list(REMOVE_ITEM cache ${before_cache})
  list(FILTER cache EXCLUDE REGEX "^(POSENC_[A-Z_]+|posenc_(BINARY_DIR|SOURCE_DIR|IS_TOP_LEVEL)|Eigen3_DIR)$")
  list(FILTER cache EXCLUDE REGEX "^(FETCHCONTENT_|CMAKE_PROJECT_VERSION)")
  if(cache)
    message(SEND_ERROR "New cache variables: ${cache}")
  endif()

  get_property(targets DIRECTORY ${source_dir} PROPERTY BUILDSYSTEM_TARGETS)
  get_property(folders DIRECTORY ${source_dir} PROPERTY SUBDIRECTORIES)
  get_property(tests DIRECTORY ${source_dir} PROPERTY TESTS)
  if(NOT "${targets}" STREQUAL "posenc" OR folders OR tests)
    message(SEND_ERROR "posenc brought targets (${targets}), folders (${folders}) or tests (${tests})")
  endif()
endfunction()
