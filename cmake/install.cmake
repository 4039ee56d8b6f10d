# `cmake --install build --prefix P`: the program, the library with its public headers, and the package files by which
# other projects find it (find_package(lathe), pkg-config lathe). Nothing installed knows a path of this machine but the
# places of the libraries that it needs, so the prefix can be moved.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# All folders but the command line as one archive: users link one name, in any order.
get_property(libraries GLOBAL PROPERTY LATHE_LIBRARIES)
list(REMOVE_ITEM libraries lathe_cli)
foreach(library IN LISTS libraries)
  list(APPEND objects $<TARGET_OBJECTS:${library}>)
endforeach()
add_library(liblathe STATIC ${objects})
set_target_properties(liblathe PROPERTIES OUTPUT_NAME lathe EXPORT_NAME lathe LINKER_LANGUAGE CXX UNITY_BUILD OFF)
target_compile_features(liblathe PUBLIC cxx_std_20)
target_include_directories(liblathe INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
# What the archive needs when it is linked; its headers need fmt and Threads alone. Libraries without a CMake package go
# by name.
set(lathe_packages hwy PNG)
set(lathe_names deflate xxhash ${CMAKE_DL_LIBS})
target_link_libraries(liblathe PUBLIC fmt::fmt Threads::Threads PRIVATE hwy::hwy PNG::PNG ${lathe_names})
if(LATHE_SANITIZE)
  list(JOIN LATHE_SANITIZE "," kinds)
  target_link_options(liblathe INTERFACE -fsanitize=${kinds})
endif()

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/lathe)
install(TARGETS lathe RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# Opened by the program at run time, from beside its folder.
get_property(plugins GLOBAL PROPERTY LATHE_PLUGINS)
if(plugins)
  install(TARGETS ${plugins} LIBRARY DESTINATION lib/lathe)
endif()
install(TARGETS liblathe EXPORT lathe ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT lathe NAMESPACE lathe:: FILE lathe-targets.cmake DESTINATION ${package})

# Headers: those that lathe.h reaches, as <lathe/folder/x.h>.
install(CODE "execute_process(COMMAND ${CMAKE_COMMAND} -DSOURCE=${CMAKE_SOURCE_DIR}/src -DOUT=${CMAKE_BINARY_DIR}/public/lathe
                 -P ${CMAKE_SOURCE_DIR}/cmake/public_headers.cmake COMMAND_ERROR_IS_FATAL ANY)")
install(DIRECTORY ${CMAKE_BINARY_DIR}/public/lathe DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

configure_package_config_file(cmake/lathe-config.cmake.in ${CMAKE_BINARY_DIR}/lathe-config.cmake
                              INSTALL_DESTINATION ${package} NO_SET_AND_CHECK_MACRO)
# While the major version is 0, another minor version may be another interface.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/lathe-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/lathe-config.cmake ${CMAKE_BINARY_DIR}/lathe-config-version.cmake
        DESTINATION ${package})
file(RELATIVE_PATH lathe_up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
list(TRANSFORM lathe_names PREPEND "-l" OUTPUT_VARIABLE lathe_flags)
list(JOIN lathe_flags " " lathe_flags)
configure_file(cmake/lathe.pc.in ${CMAKE_BINARY_DIR}/lathe.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/lathe.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(DIRECTORY recipes targets DESTINATION ${CMAKE_INSTALL_DATADIR}/lathe FILES_MATCHING PATTERN *.toml)
install(DIRECTORY examples/api DESTINATION ${CMAKE_INSTALL_DATADIR}/lathe/examples)
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN *.md)
install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
