# SPDX-License-Identifier: MIT
# The tools of bench/: the load generator and the callee it is measured with. Not part of `all`: the target
# bench_tools builds them, next to the program.
add_custom_target(bench_tools)
add_executable(bench_load EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/bench/load.c ${CMAKE_SOURCE_DIR}/bench/histogram.c)
target_link_libraries(bench_load PRIVATE samekey_flags samekey_llhttp m)
add_executable(bench_callee EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/bench/callee.c)
target_link_libraries(bench_callee PRIVATE samekey_flags samekey_llhttp)
add_executable(bench_fill EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/bench/fill.c)
target_link_libraries(bench_fill PRIVATE samekey_flags samekey_store)
add_executable(bench_floor EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/bench/floor.c)
target_link_libraries(bench_floor PRIVATE samekey_flags PkgConfig::SQLITE Threads::Threads)
add_dependencies(bench_tools bench_load bench_callee bench_fill bench_floor)

if(CMOCKA_FOUND)
  add_executable(bench_test_histogram EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/bench/test_histogram.c
                                                       ${CMAKE_SOURCE_DIR}/bench/histogram.c)
  target_link_libraries(bench_test_histogram PRIVATE samekey_flags PkgConfig::CMOCKA m)
  add_dependencies(unit_tests bench_test_histogram)
  add_test(NAME bench/histogram COMMAND bench_test_histogram)
endif()
find_program(PYTHON3 python3 PATHS /usr/bin NO_DEFAULT_PATH)
if(PYTHON3)
  add_dependencies(unit_tests bench_tools)
  add_test(NAME bench/tools COMMAND ${PYTHON3} ${CMAKE_SOURCE_DIR}/bench/test_tools.py ${CMAKE_BINARY_DIR})
  set_tests_properties(bench/tools PROPERTIES TIMEOUT 120 ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1")
endif()
