# SPDX-License-Identifier: MIT
# libsamekey: the public library, made of the objects of base, core and caller. Shared, with a SONAME and only the names
# of include/samekey/ to be seen; and static, as one relocatable object whose other names were made local, so that a
# program that has a budget_take() of its own can still link it.
include(GNUInstallDirs)
set(SAMEKEY_SOVERSION 0) # raise it with every change that a compiled program would notice

set(library_objects $<TARGET_OBJECTS:samekey_base> $<TARGET_OBJECTS:samekey_core> $<TARGET_OBJECTS:samekey_caller>)
set(library_needs PkgConfig::CURL PkgConfig::SQLITE PkgConfig::CRYPTO PkgConfig::JANSSON Threads::Threads m)
set(library_map ${CMAKE_SOURCE_DIR}/src/caller/libsamekey.map)

add_library(samekey_shared SHARED ${library_objects})
set_target_properties(samekey_shared PROPERTIES OUTPUT_NAME samekey VERSION ${PROJECT_VERSION} SOVERSION ${SAMEKEY_SOVERSION}
                                                LINKER_LANGUAGE C LINK_DEPENDS ${library_map})
target_link_libraries(samekey_shared PRIVATE ${library_needs})
target_link_options(samekey_shared PRIVATE -Wl,--version-script=${library_map} -Wl,--as-needed)
if(NOT SAMEKEY_SANITIZE)
  target_link_options(samekey_shared PRIVATE -Wl,-z,defs)
endif()
target_include_directories(samekey_shared INTERFACE ${CMAKE_SOURCE_DIR}/include)

set(static_library ${CMAKE_BINARY_DIR}/libsamekey.a)
add_custom_command(
  OUTPUT ${static_library}
  COMMAND ${CMAKE_LINKER} -r -o libsamekey_all.o ${library_objects}
  COMMAND ${CMAKE_OBJCOPY} --localize-hidden libsamekey_all.o
  COMMAND ${CMAKE_COMMAND} -E rm -f ${static_library}
  COMMAND ${CMAKE_AR} rcs ${static_library} libsamekey_all.o
  DEPENDS samekey_base samekey_core samekey_caller ${library_objects}
  COMMAND_EXPAND_LISTS VERBATIM COMMENT "Linking C static library libsamekey.a")
add_custom_target(samekey_static ALL DEPENDS ${static_library})

configure_file(${CMAKE_SOURCE_DIR}/cmake/samekey.pc.in ${CMAKE_BINARY_DIR}/samekey.pc @ONLY)
configure_file(${CMAKE_SOURCE_DIR}/cmake/samekeyConfig.cmake.in ${CMAKE_BINARY_DIR}/samekeyConfig.cmake @ONLY)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/samekeyConfigVersion.cmake COMPATIBILITY SameMinorVersion)

install(TARGETS samekey_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${static_library} DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${CMAKE_SOURCE_DIR}/include/samekey/samekey.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/samekey)
install(FILES ${CMAKE_BINARY_DIR}/samekey.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${CMAKE_BINARY_DIR}/samekeyConfig.cmake ${CMAKE_BINARY_DIR}/samekeyConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/samekey)
foreach(section 1 3 5)
  file(GLOB manuals CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/docs/man/*.${section})
  install(FILES ${manuals} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
endforeach()

# The tools of test/caller: the C example and the programs that the Python tests drive. Not part of `all`.
add_custom_target(caller_tools)
file(GLOB tools CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/test/caller/tool_*.c ${CMAKE_SOURCE_DIR}/examples/c/*.c
     ${CMAKE_SOURCE_DIR}/examples/rpc/*.c)
foreach(source ${tools})
  get_filename_component(name ${source} NAME_WE)
  add_executable(caller_${name} EXCLUDE_FROM_ALL ${source})
  target_link_libraries(caller_${name} PRIVATE samekey_flags samekey_shared Threads::Threads)
  add_dependencies(caller_tools caller_${name})
endforeach()
