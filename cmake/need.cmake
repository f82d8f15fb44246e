# SPDX-License-Identifier: MIT
# samekey_need(PREFIX MODULE PACKAGE) finds a library by pkg-config as PkgConfig::PREFIX. What is missing is
# collected, so that samekey_stop_if_missing() can name everything at once, by the package that brings it.
find_program(SAMEKEY_PKG_CONFIG NAMES pkg-config pkgconf)
if(NOT SAMEKEY_PKG_CONFIG)
  message(FATAL_ERROR "pkg-config is missing: scripts/deps run installs it and all else samekey needs")
endif()
find_package(PkgConfig REQUIRED)
set(samekey_missing "")

macro(samekey_need prefix module package)
  pkg_check_modules(${prefix} QUIET IMPORTED_TARGET ${module})
  if(NOT ${prefix}_FOUND)
    string(APPEND samekey_missing "\n  ${module} (Debian package ${package})")
  endif()
endmacro()

function(samekey_stop_if_missing)
  if(samekey_missing)
    message(FATAL_ERROR "These libraries are missing:${samekey_missing}\n"
                        "'scripts/deps run' installs them (and asks for sudo only then).")
  endif()
endfunction()
