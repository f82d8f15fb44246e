# SPDX-License-Identifier: MIT
# Warnings and sanitizers for our own code; the parser built from Debian's sources is not ours to warn about.
add_library(samekey_flags INTERFACE)
target_compile_options(samekey_flags INTERFACE -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes
                       -fno-strict-aliasing -fvisibility=hidden)
if(SAMEKEY_WERROR)
  target_compile_options(samekey_flags INTERFACE -Werror)
endif()
target_compile_definitions(samekey_flags INTERFACE _GNU_SOURCE SAMEKEY_VERSION="${PROJECT_VERSION}")
target_include_directories(samekey_flags INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
# A sanitizer's build is not shipped: half the time to compile, and names and lines are still in its reports. Fuzzing
# finds more in the same time with -O2. With -O1 gcc no longer sees that a number is short enough for its text; the build
# that is shipped still asks.
if(SAMEKEY_SANITIZE AND NOT SAMEKEY_FUZZ)
  add_compile_options(-O1 -g1 $<$<C_COMPILER_ID:GNU>:-Wno-format-truncation>)
endif()
if(SAMEKEY_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(SAMEKEY_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
elseif(NOT SAMEKEY_SANITIZE STREQUAL "")
  message(FATAL_ERROR "SAMEKEY_SANITIZE is '${SAMEKEY_SANITIZE}': use address, thread or leave it empty")
endif()
if(SAMEKEY_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
