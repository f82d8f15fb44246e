# SPDX-License-Identifier: MIT
# The guard: its SQL as a table of the program, and the two libraries that services link, one for each database, so that
# who uses SQLite needs no libpq. Each is shared, with a SONAME and only the names of its header to be seen, and static,
# as one relocatable object whose other names were made local.
include(GNUInstallDirs)
set(guard_schema ${CMAKE_BINARY_DIR}/guard/guard_schema.c)
set(guard_texts guard_schema_postgres=${CMAKE_SOURCE_DIR}/sql/guard.postgres.sql
                guard_schema_sqlite=${CMAKE_SOURCE_DIR}/sql/guard.sqlite.sql)
add_custom_command(
  OUTPUT ${guard_schema}
  COMMAND ${CMAKE_COMMAND} -DOUT=${guard_schema} -DHEADER=guard/schema.h "-DTEXTS=${guard_texts}"
          -P ${CMAKE_SOURCE_DIR}/cmake/text_table.cmake
  DEPENDS ${CMAKE_SOURCE_DIR}/sql/guard.postgres.sql ${CMAKE_SOURCE_DIR}/sql/guard.sqlite.sql
          ${CMAKE_SOURCE_DIR}/cmake/text_table.cmake
  COMMENT "Putting the guard's SQL into the program" VERBATIM)
target_sources(samekey_guard PRIVATE ${guard_schema})
if(TARGET samekey)
  target_link_libraries(samekey PRIVATE samekey_guard)
endif()

# samekey_guard_library(sqlite|postgres LIBRARIES...)
set(SAMEKEY_GUARD_SOVERSION 0) # raise it with every change that a compiled program would notice
function(samekey_guard_library database)
  set(name samekey_guard_${database})
  set(map ${CMAKE_SOURCE_DIR}/src/guard/libsamekey_guard_${database}.map)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/guard/${database}*.c)
  add_library(${name}_objects OBJECT ${sources} ${CMAKE_SOURCE_DIR}/src/guard/answer.c ${guard_schema})
  target_link_libraries(${name}_objects PRIVATE samekey_flags ${ARGN})
  add_library(${name}_shared SHARED $<TARGET_OBJECTS:${name}_objects>)
  set_target_properties(${name}_shared PROPERTIES OUTPUT_NAME ${name} VERSION ${PROJECT_VERSION}
                        SOVERSION ${SAMEKEY_GUARD_SOVERSION} LINKER_LANGUAGE C LINK_DEPENDS ${map})
  target_link_libraries(${name}_shared PRIVATE samekey_core ${ARGN})
  target_link_options(${name}_shared PRIVATE -Wl,--version-script=${map} -Wl,--as-needed)
  if(NOT SAMEKEY_SANITIZE)
    target_link_options(${name}_shared PRIVATE -Wl,-z,defs)
  endif()
  target_include_directories(${name}_shared INTERFACE ${CMAKE_SOURCE_DIR}/include)

  set(static ${CMAKE_BINARY_DIR}/lib${name}.a)
  add_custom_command(
    OUTPUT ${static}
    COMMAND ${CMAKE_LINKER} -r -o lib${name}_all.o $<TARGET_OBJECTS:${name}_objects> $<TARGET_FILE:samekey_core>
            $<TARGET_FILE:samekey_base>
    COMMAND ${CMAKE_OBJCOPY} --localize-hidden lib${name}_all.o
    COMMAND ${CMAKE_COMMAND} -E rm -f ${static}
    COMMAND ${CMAKE_AR} rcs ${static} lib${name}_all.o
    DEPENDS samekey_core samekey_base ${name}_objects $<TARGET_OBJECTS:${name}_objects>
    COMMAND_EXPAND_LISTS VERBATIM COMMENT "Linking C static library lib${name}.a")
  add_custom_target(${name}_static ALL DEPENDS ${static})

  install(TARGETS ${name}_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(FILES ${static} DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(FILES ${CMAKE_SOURCE_DIR}/include/samekey/guard.h ${CMAKE_SOURCE_DIR}/include/samekey/guard_${database}.h
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/samekey)
  set(guard_name ${name})
  set(guard_requires ${database})
  string(REPLACE postgres libpq guard_requires ${database})
  string(REPLACE sqlite sqlite3 guard_requires ${guard_requires})
  configure_file(${CMAKE_SOURCE_DIR}/cmake/samekey_guard.pc.in ${CMAKE_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
samekey_guard_library(sqlite PkgConfig::SQLITE)
samekey_guard_library(postgres PkgConfig::PQ)

# The programs that test/guard drives. Not part of `all`.
add_custom_target(guard_tools)
file(GLOB tools CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/test/guard/tool_*.c ${CMAKE_SOURCE_DIR}/examples/guard/c/*.c)
foreach(source ${tools})
  get_filename_component(name ${source} NAME_WE)
  add_executable(guard_${name} EXCLUDE_FROM_ALL ${source})
  target_compile_definitions(guard_${name} PRIVATE SAMEKEY_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_link_libraries(guard_${name} PRIVATE samekey_flags samekey_guard_postgres_shared samekey_guard_sqlite_shared
                                              PkgConfig::PQ PkgConfig::SQLITE)
  add_dependencies(guard_tools guard_${name})
endforeach()
