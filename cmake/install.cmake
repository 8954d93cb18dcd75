# What a C or C++ program needs: the library, its headers, a CMake package and a pkg-config file.

include(CMakePackageConfigHelpers)

set(plait_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/plait)

install(TARGETS plait EXPORT plait
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/plait DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT plait NAMESPACE plait:: FILE plaitTargets.cmake DESTINATION ${plait_package_dir})

configure_package_config_file(cmake/plaitConfig.cmake.in ${PROJECT_BINARY_DIR}/plaitConfig.cmake
  INSTALL_DESTINATION ${plait_package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/plaitConfigVersion.cmake
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/plaitConfig.cmake ${PROJECT_BINARY_DIR}/plaitConfigVersion.cmake
        DESTINATION ${plait_package_dir})

# The prefix is taken from the place of the file, so that the installed tree can be moved; not where
# that place is absolute, nor of a system's own tree, whose folders pkg-config is to recognize.
# Folders that are absolute are what they are.
set(plait_pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(IS_ABSOLUTE "${plait_pc_dir}" OR CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  set(plait_pc_prefix "${CMAKE_INSTALL_PREFIX}")
else()
  file(RELATIVE_PATH plait_pc_up /${plait_pc_dir} /)
  string(REGEX REPLACE "/$" "" plait_pc_up "${plait_pc_up}")
  set(plait_pc_prefix "\${pcfiledir}/${plait_pc_up}")
endif()
foreach(dir IN ITEMS LIBDIR INCLUDEDIR)
  set(plait_pc_${dir} "${CMAKE_INSTALL_${dir}}")
  if(NOT IS_ABSOLUTE "${plait_pc_${dir}}")
    string(PREPEND plait_pc_${dir} "\${prefix}/")
  endif()
endforeach()
configure_file(cmake/plait.pc.in ${PROJECT_BINARY_DIR}/plait.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/plait.pc DESTINATION ${plait_pc_dir})
