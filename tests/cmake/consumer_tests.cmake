# SPDX-License-Identifier: Apache-2.0
# Projects that use posenc in the four usual ways: installed and found by CMake, installed and found by pkg-config, as a
# subfolder, and by FetchContent. Each is configured, built and run from nothing. The installed tree is moved first.
if(NOT POSENC_INSTALL)
  return()
endif()
set(posenc_consumer_dir ${CMAKE_CURRENT_BINARY_DIR}/consumer)
set(posenc_consumer_script ${CMAKE_CURRENT_SOURCE_DIR}/cmake/consumer.cmake)
find_program(PKG_CONFIG_EXECUTABLE pkg-config)

function(posenc_add_consumer way)
  add_test(NAME consumer.${way} COMMAND ${CMAKE_COMMAND} -DWAY=${way}
    "-DCOMPILER=${CMAKE_CXX_COMPILER}" "-DCXX_FLAGS=${CMAKE_CXX_FLAGS}" "-DGENERATOR=${CMAKE_GENERATOR}"
    "-DMAKE_PROGRAM=${CMAKE_MAKE_PROGRAM}" "-DEIGEN_DIR=${Eigen3_DIR}" "-DVERSION=${PROJECT_VERSION}"
    "-DPKG_CONFIG=${PKG_CONFIG_EXECUTABLE}" "-DSOURCE_DIR=${PROJECT_SOURCE_DIR}" "-DBINARY_DIR=${PROJECT_BINARY_DIR}"
    "-DWORK_DIR=${posenc_consumer_dir}" -P ${posenc_consumer_script})
  set_tests_properties(consumer.${way} PROPERTIES LABELS consumer TIMEOUT 300)
endfunction()

posenc_add_consumer(install)
set_tests_properties(consumer.install PROPERTIES FIXTURES_SETUP posenc_installed)
posenc_add_consumer(find_package)
set_tests_properties(consumer.find_package PROPERTIES FIXTURES_REQUIRED posenc_installed)
if(PKG_CONFIG_EXECUTABLE)
  posenc_add_consumer(pkg_config)
  set_tests_properties(consumer.pkg_config PROPERTIES FIXTURES_REQUIRED posenc_installed)
endif()
posenc_add_consumer(absolute_folders)
posenc_add_consumer(add_subdirectory)
posenc_add_consumer(fetch_content)
