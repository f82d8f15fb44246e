# SPDX-License-Identifier: MIT
# test/unit/FOLDER/test_NOUN.c is a cmocka program linked to samekey_FOLDER; test/fuzz/FOLDER/fuzz_NOUN.c a
# libFuzzer target (with SAMEKEY_FUZZ) whose seeds are in test/fuzz/FOLDER/corpus_NOUN/.
pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)

file(GLOB unit_tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/test/unit/*/test_*.c)
foreach(source ${unit_tests})
  get_filename_component(name ${source} NAME_WE)
  get_filename_component(folder ${source} DIRECTORY)
  get_filename_component(folder ${folder} NAME)
  set(target unit_${folder}_${name})
  add_executable(${target} ${source})
  target_link_libraries(${target} PRIVATE samekey_${folder} PkgConfig::CMOCKA)
  target_compile_definitions(${target} PRIVATE SAMEKEY_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  add_test(NAME unit/${folder}/${name} COMMAND ${target})
  set_tests_properties(unit/${folder}/${name} PROPERTIES TIMEOUT 300)
endforeach()

if(SAMEKEY_FUZZ)
  file(GLOB fuzz_tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/test/fuzz/*/fuzz_*.c)
  foreach(source ${fuzz_tests})
    get_filename_component(name ${source} NAME_WE)
    get_filename_component(folder ${source} DIRECTORY)
    get_filename_component(folder ${folder} NAME)
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE samekey_${folder})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  endforeach()
endif()
