# SPDX-License-Identifier: MIT
# cmake -DOUT=FILE.c -DHEADER=folder/noun.h -DTEXTS=name=PATH;name=PATH -P cmake/text_table.cmake
# Makes a C file of text files: each becomes `const char NAME[]`, ended by a NUL.
set(made "/* Made by cmake/text_table.cmake; the texts are in sql/. */\n#include \"${HEADER}\"\n")
foreach(pair ${TEXTS})
  string(REGEX MATCH "^([a-z_]+)=(.*)$" matched "${pair}")
  file(READ "${CMAKE_MATCH_2}" bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)"
         "\\1\n" bytes "${bytes}")
  string(REGEX MATCH "^([a-z_]+)=" matched "${pair}")
  string(APPEND made "\nconst char ${CMAKE_MATCH_1}[] = {\n${bytes}0};\n")
endforeach()
file(WRITE "${OUT}" "${made}")
