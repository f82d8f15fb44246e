# SPDX-License-Identifier: MIT
# llhttp: Debian 13 packages libllhttp-dev; Debian 12 ships the generated C sources in node-llhttp.
# Nothing is copied: they are compiled from where the package installed them, in strict mode.
find_path(LLHTTP_SOURCE_DIR llhttp.c PATHS /usr/share/llhttp NO_DEFAULT_PATH)
find_path(LLHTTP_SOURCE_INCLUDE llhttp.h PATHS /usr/share/include/llhttp NO_DEFAULT_PATH)
add_library(samekey_llhttp STATIC EXCLUDE_FROM_ALL)
if(LLHTTP_SOURCE_DIR AND LLHTTP_SOURCE_INCLUDE)
  target_sources(samekey_llhttp PRIVATE ${LLHTTP_SOURCE_DIR}/llhttp.c ${LLHTTP_SOURCE_DIR}/api.c
                                        ${LLHTTP_SOURCE_DIR}/http.c)
  target_include_directories(samekey_llhttp SYSTEM PUBLIC ${LLHTTP_SOURCE_INCLUDE})
  target_compile_definitions(samekey_llhttp PUBLIC LLHTTP_STRICT_MODE=1)
  target_compile_options(samekey_llhttp PRIVATE -w -O2)
else()
  find_library(LLHTTP_LIBRARY llhttp)
  find_path(LLHTTP_INCLUDE llhttp.h)
  if(NOT LLHTTP_LIBRARY OR NOT LLHTTP_INCLUDE)
    message(FATAL_ERROR "llhttp is missing: install node-llhttp (Debian 12) or libllhttp-dev (Debian 13); "
                        "scripts/deps does it")
  endif()
  file(WRITE ${CMAKE_BINARY_DIR}/llhttp_empty.c "typedef int samekey_llhttp_is_packaged;\n")
  target_sources(samekey_llhttp PRIVATE ${CMAKE_BINARY_DIR}/llhttp_empty.c)
  target_include_directories(samekey_llhttp SYSTEM PUBLIC ${LLHTTP_INCLUDE})
  target_link_libraries(samekey_llhttp PUBLIC ${LLHTTP_LIBRARY})
endif()
