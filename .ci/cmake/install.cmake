# SPDX-License-Identifier: Apache-2.0
# Install rules, the package config and the pkg-config file. All of it is independent of the architecture, hence under
# the data folder; the installed tree can be moved, unless the caller asks for absolute folders.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

target_include_directories(posenc INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

set(posenc_package_dir ${CMAKE_INSTALL_DATADIR}/cmake/posenc)
set(posenc_pkgconfig_dir ${CMAKE_INSTALL_DATADIR}/pkgconfig)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/posenc DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  COMPONENT posenc FILES_MATCHING PATTERN "*.hpp")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/posenc COMPONENT posenc)
install(TARGETS posenc EXPORT posenc-targets)
install(EXPORT posenc-targets NAMESPACE posenc:: DESTINATION ${posenc_package_dir} COMPONENT posenc)

# Before 1.0 a minor version may break, afterwards a major one.
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(posenc_compatibility SameMinorVersion)
else()
  set(posenc_compatibility SameMajorVersion)
endif()
write_basic_package_version_file(${PROJECT_BINARY_DIR}/posenc-config-version.cmake
  COMPATIBILITY ${posenc_compatibility} ARCH_INDEPENDENT)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/posenc-config.cmake.in ${PROJECT_BINARY_DIR}/posenc-config.cmake
  INSTALL_DESTINATION ${posenc_package_dir} NO_SET_AND_CHECK_MACRO)
install(FILES ${PROJECT_BINARY_DIR}/posenc-config.cmake ${PROJECT_BINARY_DIR}/posenc-config-version.cmake
  DESTINATION ${posenc_package_dir} COMPONENT posenc)

# pkg-config: the prefix is found from the place of the file itself; a folder given as an absolute path stays absolute.
if(IS_ABSOLUTE "${posenc_pkgconfig_dir}")
  set(posenc_pc_prefix "${CMAKE_INSTALL_PREFIX}")
else()
  file(RELATIVE_PATH posenc_pc_up "/${posenc_pkgconfig_dir}" "/")
  string(REGEX REPLACE "/$" "" posenc_pc_up "${posenc_pc_up}")
  set(posenc_pc_prefix "\${pcfiledir}/${posenc_pc_up}")
endif()
if(IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  set(posenc_pc_includedir "${CMAKE_INSTALL_INCLUDEDIR}")
else()
  set(posenc_pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/posenc.pc.in ${PROJECT_BINARY_DIR}/posenc.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/posenc.pc DESTINATION ${posenc_pkgconfig_dir} COMPONENT posenc)
