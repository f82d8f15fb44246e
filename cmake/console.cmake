# SPDX-License-Identifier: MIT
# The web console inside the program. Where Node and console/node_modules are (`scripts/build` fetches them where npm
# is), console/ is bundled into the build directory and becomes the table of src/gateway/console.h. Where they are not,
# the table is empty and the admin address says so: the program never needs npm.
option(SAMEKEY_CONSOLE "Put the web console into the program" ON)
find_program(NODE node)
set(console_made ${CMAKE_BINARY_DIR}/console)
if(SAMEKEY_CONSOLE AND NODE AND EXISTS ${CMAKE_SOURCE_DIR}/console/node_modules/.package-lock.json)
  file(GLOB_RECURSE console_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/console/src/*)
  add_custom_command(
    OUTPUT ${console_made}/console_assets.c
    COMMAND ${NODE} ${CMAKE_SOURCE_DIR}/console/build.mjs console
    DEPENDS ${console_sources} ${CMAKE_SOURCE_DIR}/console/build.mjs ${CMAKE_SOURCE_DIR}/console/package-lock.json
    WORKING_DIRECTORY ${CMAKE_BINARY_DIR}
    COMMENT "Bundling the console"
    VERBATIM)
  include(GNUInstallDirs)
  install(FILES ${CMAKE_SOURCE_DIR}/console/NOTICE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME NOTICE.console)
else()
  message(STATUS "No node or no console/node_modules: samekey is built without its web console")
  file(CONFIGURE OUTPUT ${console_made}/console_assets.c CONTENT
"/* Made by cmake/console.cmake: this build has no console. */
#include \"gateway/console.h\"

const struct console_asset console_assets[1] = {{0}};
const size_t console_assets_count = 0;
")
endif()
target_sources(samekey_gateway PRIVATE ${console_made}/console_assets.c)
