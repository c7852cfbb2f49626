# SPDX-License-Identifier: Apache-2.0
# The target gives include folders, Eigen and a C++ standard, and nothing else.
foreach(property INTERFACE_COMPILE_OPTIONS INTERFACE_COMPILE_DEFINITIONS INTERFACE_LINK_OPTIONS INTERFACE_SOURCES
    INTERFACE_PRECOMPILE_HEADERS INTERFACE_SYSTEM_INCLUDE_DIRECTORIES)
  get_target_property(value posenc::posenc ${property})
  # An installed target marks its own folder as a system folder by CMake's rule for imported targets.
  if(value AND NOT property STREQUAL "INTERFACE_SYSTEM_INCLUDE_DIRECTORIES")
    message(FATAL_ERROR "posenc::posenc carries ${property} = ${value}")
  endif()
endforeach()
get_target_property(value posenc::posenc INTERFACE_LINK_LIBRARIES)
if(NOT value STREQUAL "Eigen3::Eigen")
  message(FATAL_ERROR "posenc::posenc links ${value}")
endif()
get_target_property(value posenc::posenc INTERFACE_COMPILE_FEATURES)
if(NOT value STREQUAL "cxx_std_20")
  message(FATAL_ERROR "posenc::posenc asks for ${value}")
endif()
