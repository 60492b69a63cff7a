# What `cmake --install` puts where.

include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tensormsg)

install(TARGETS tensormsg tensormsg_static EXPORT tensormsg-targets)
install(DIRECTORY include/tensormsg TYPE INCLUDE FILES_MATCHING PATTERN "*.h")
# As they lie in the sources: the documents refer to each other.
install(FILES LICENSE README.md CHANGELOG.md TYPE DOC)
install(DIRECTORY docs TYPE DOC FILES_MATCHING PATTERN "*.md"
        PATTERN docs/man EXCLUDE PATTERN docs/site EXCLUDE)
if(EXISTS ${PROJECT_SOURCE_DIR}/docs/man/tensormsg.1 AND TMSG_BUILD_TOOLS)
    install(FILES docs/man/tensormsg.1
            DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()

install(EXPORT tensormsg-targets NAMESPACE tensormsg::
        DESTINATION ${package_dir})
configure_package_config_file(packaging/tensormsg-config.cmake.in
    ${PROJECT_BINARY_DIR}/packaging/tensormsg-config.cmake
    INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor release may change the ABI.
write_basic_package_version_file(
    ${PROJECT_BINARY_DIR}/packaging/tensormsg-config-version.cmake
    COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/packaging/tensormsg-config.cmake
              ${PROJECT_BINARY_DIR}/packaging/tensormsg-config-version.cmake
        DESTINATION ${package_dir})

# The .pc file finds its prefix from where it lies: --prefix and DESTDIR of the
# install step, and a tree that was moved, are then right without a rewrite.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX
           BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig
           OUTPUT_VARIABLE pc_prefix)
cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_LIBDIR
           BASE_DIRECTORY "\${prefix}" OUTPUT_VARIABLE pc_libdir)
cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_INCLUDEDIR
           BASE_DIRECTORY "\${prefix}" OUTPUT_VARIABLE pc_includedir)
list(TRANSFORM TMSG_LIBRARY_DIRS PREPEND "-L" OUTPUT_VARIABLE pc_dirs)
list(TRANSFORM TMSG_LIBRARIES PREPEND "-l" OUTPUT_VARIABLE pc_libs)
list(JOIN pc_dirs " " pc_dirs)
list(JOIN pc_libs " " pc_libs)
configure_file(packaging/tensormsg.pc.in
               ${PROJECT_BINARY_DIR}/packaging/tensormsg.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/packaging/tensormsg.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
