# SPDX-License-Identifier: MIT
# The program loads libcurl and libpq at their first call (src/cli/late.h), by the names that a link against them would
# have put into it.
foreach(prefix CURL PQ)
  list(GET ${prefix}_LINK_LIBRARIES 0 library)
  execute_process(COMMAND ${CMAKE_OBJDUMP} -p ${library} OUTPUT_VARIABLE headers ERROR_QUIET)
  if(NOT headers MATCHES "SONAME +([^\n]+)")
    message(FATAL_ERROR "${library} has no SONAME: samekey needs the shared library")
  endif()
  set_property(SOURCE ${CMAKE_SOURCE_DIR}/src/cli/late_curl.c ${CMAKE_SOURCE_DIR}/src/cli/late_pq.c
               APPEND PROPERTY COMPILE_DEFINITIONS SAMEKEY_${prefix}_SONAME="${CMAKE_MATCH_1}")
endforeach()
target_link_options(samekey PRIVATE -Wl,--as-needed)
target_link_libraries(samekey PRIVATE ${CMAKE_DL_LIBS})
